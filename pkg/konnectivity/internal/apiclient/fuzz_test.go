// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzKubeconfig: a kubeconfig is refused, or names a server.
func FuzzKubeconfig(f *testing.F) {
	f.Add("current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: {server: https://x}}]\nusers: [{name: u, user: {token: t, as: y}}]\n")
	f.Add(`{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"k"}}],"clusters":[{"name":"k","cluster":{"server":"x","certificate-authority-data":"eA=="}}]}`)
	f.Add("users: [{user: {exec: {command: x, apiVersion: client.authentication.k8s.io/v1}}}]")
	f.Fuzz(func(t *testing.T, text string) {
		cfg, _, err := parse([]byte(text), t.TempDir())
		if err == nil && (cfg.Host == "" || cfg.TLS == nil) {
			t.Errorf("accepted %+v", cfg)
		}
	})
}

// FuzzLabels: what is accepted has a key and a value for each pair.
func FuzzLabels(f *testing.F) {
	f.Add("k8s-app=konnectivity-server,a=b")
	f.Add("a,=")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ParseLabels(s)
		if err == nil && (len(m) == 0 || len(m) > strings.Count(s, ",")+1) {
			t.Errorf("%q became %v", s, m)
		}
	})
}

// FuzzMicroTime: times of Leases are refused, or survive being written.
func FuzzMicroTime(f *testing.F) {
	f.Add(`"2026-01-02T03:04:05.678901Z"`)
	f.Add(`"2026-01-02T03:04:05+02:00"`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, s string) {
		var a, b MicroTime
		if a.UnmarshalJSON([]byte(s)) != nil || a.UTC().Year() < 1 || a.UTC().Year() > 9999 {
			return // the format has four digits for the year
		}
		text, err := a.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := b.UnmarshalJSON(text); err != nil || a.Sub(b.Time).Abs() > time.Microsecond {
			t.Errorf("%s became %s, %v", s, text, err)
		}
	})
}

// FuzzExecCredential: a plugin's answer is refused, or there is something in it to prove
// oneself by.
func FuzzExecCredential(f *testing.F) {
	version := execVersions[0]
	f.Add(`{"apiVersion":"` + version + `","kind":"ExecCredential","status":{"token":"t","expirationTimestamp":"2026-01-02T03:04:05Z"}}`)
	f.Add(`{"apiVersion":"` + version + `","kind":"ExecCredential","status":{"clientCertificateData":"-----BEGIN CERTIFICATE-----","clientKeyData":"x"}}`)
	f.Add(`{"apiVersion":"` + version + `","kind":"ExecCredential","status":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		var c execCredential
		if json.Unmarshal([]byte(text), &c) != nil {
			return
		}
		st, err := c.check(version)
		if err == nil && (st.Token == "" && st.pair == nil || c.APIVersion != version) {
			t.Errorf("accepted %q", text)
		}
	})
}

// FuzzTokenReview: of what an API server may answer, only a token that is good for this
// server and of the agents' ServiceAccount is taken.
func FuzzTokenReview(f *testing.F) {
	f.Add(`{"status":{"authenticated":true,"audiences":["a"],"user":{"username":"system:serviceaccount:n:s","extra":{"authentication.kubernetes.io/node-name":["node"]}}}}`)
	f.Add(`{"status":{"authenticated":true,"error":"no","audiences":["a"]}}`)
	f.Add(`{"status":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		a := TokenAuth{Audience: "a", Namespace: "n", ServiceAccount: "s"}
		var tr tokenReview
		if json.Unmarshal([]byte(text), &tr) != nil || a.judge(&tr) != nil {
			return
		}
		if st := tr.Status; !st.Authenticated || st.Error != "" || !slices.Contains(st.Audiences, "a") || st.User.Username != "system:serviceaccount:n:s" {
			t.Errorf("accepted %q", text)
		}
	})
}
