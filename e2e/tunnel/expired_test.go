// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// expiredToken: the server refuses a token whose time is over, as the API server says so,
// and lets the agent in with the same token and a later end.
// It observes KON-69 and KON-85 of docs/requirements.md.
func expiredToken(t *testing.T, cp *daemontest.ControlPlane) {
	good := tokenFile(t, cp, "konnectivity-agent", audience)
	file := write(t, resigned(t, cp, good, time.Now().Add(-time.Minute)))
	p := startPair(t, options{mode: "grpc", noClientCA: true, serverFlags: reviewFlags(cp), agentFlags: []string{"--service-account-token-path=" + good}})
	_, health := p.launchAgent("--service-account-token-path=" + file)
	const refused = `fairlead_tunnel_server_agents_refused_total{reason="token"}`
	daemontest.Eventually(t, startBound, func() error {
		n, err := metric(p.serverHealth, refused)
		if err == nil && n < 1 {
			err = fmt.Errorf("no refusal is counted")
		}
		return err
	})
	if get(health+"/readyz") == nil {
		t.Error("the agent is ready")
	}
	if err := backends(p, 1)(); err != nil {
		t.Error(err)
	}
	daemontest.Eventually(t, startBound, func() error {
		if out := p.server.Output(); !strings.Contains(out, "token is not valid") || !strings.Contains(out, "expired") {
			return fmt.Errorf("the server does not say that the token has expired:\n%s", out)
		}
		return nil
	})
	renewed := resigned(t, cp, good, time.Now().Add(time.Hour))
	if err := os.WriteFile(file, []byte(renewed), 0o600); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, startBound, func() error { return get(health + "/readyz") })
	daemontest.Eventually(t, startBound, backends(p, 2))
}

// resigned is a token of the API server with another end, signed with the API server's own
// key. What it was issued at moves along, so that nothing else is wrong with it.
func resigned(t *testing.T, cp *daemontest.ControlPlane, path string, end time.Time) string {
	t.Helper()
	token, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(token), ".")
	if len(parts) != 3 {
		t.Fatalf("the token has %d parts", len(parts))
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{}
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	start := end.Add(-2 * time.Hour).Unix()
	claims["exp"], claims["iat"], claims["nbf"] = end.Unix(), start, start
	if payload, err = json.Marshal(claims); err != nil {
		t.Fatal(err)
	}
	text := parts[0] + "." + base64.RawURLEncoding.EncodeToString(payload)
	digest := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, tokenKey(t, cp), digest[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...) // ES256
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func tokenKey(t *testing.T, cp *daemontest.ControlPlane) *ecdsa.PrivateKey {
	t.Helper()
	data, err := os.ReadFile(cp.TokenKey)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("%s holds no key", cp.TokenKey)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
