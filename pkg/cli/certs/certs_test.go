// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
)

// node writes the certificates of a control plane node, good for the given time
// but for the CA, which is good for ten years.
func node(t *testing.T, validity time.Duration) string {
	t.Helper()
	root, now := t.TempDir(), time.Now()
	if validity < 0 { // has been good for an hour, until then
		now = now.Add(validity - time.Hour)
		validity = time.Hour
	}
	b := v1alpha1.New()
	b.PKI.Algorithm, b.PKI.Validity = v1alpha1.KeyECDSAP256, &metav1.Duration{Duration: validity}
	ca, err := pki.NewCA(pki.FromBundle(b), "kubernetes", now)
	if err != nil {
		t.Fatal(err)
	}
	serving, err := ca.Issue(pki.FromBundle(b), pki.Request{CommonName: "kube-apiserver", DNSNames: []string{b.Konnectivity.ServerHost}, Usages: pki.ServerAuth}, now)
	if err != nil {
		t.Fatal(err)
	}
	conf, err := konnectivity.ServerKubeconfig(b, ca, "https://192.0.2.1:6443", now)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"pki/ca.crt": ca.CertPEM(), "pki/apiserver.crt": serving.CertPEM(), "konnectivity-server.conf": conf,
	} {
		file := filepath.Join(root, "etc/kubernetes", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// check runs the command and returns what it prints and its exit code.
func check(t *testing.T, args ...string) (out string, code int, err error) {
	t.Helper()
	streams, _, stdout, _ := genericiooptions.NewTestIOStreams()
	cmd := NewCommand(streams, func(string, string, io.Reader) (*v1alpha1.Bundle, error) { return nil, nil })
	cmd.SetArgs(append([]string{"check"}, args...))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(t.Context())
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		code = coded.ExitCode()
	}
	return stdout.String(), code, err
}

// TestCheck: exit codes 0, 3 and 1 for good, soon and too late, with the file in
// the error, and tables of one line for each certificate.
func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		validity time.Duration
		code     int
		state    string
	}{
		"good":    {365 * 24 * time.Hour, 0, controlplane.CertGood},
		"soon":    {29 * 24 * time.Hour, 3, controlplane.CertExpiring},
		"expired": {-time.Minute, 1, controlplane.CertExpired},
	} {
		t.Run(name, func(t *testing.T) {
			root := node(t, tc.validity)
			out, code, err := check(t, "--root", root)
			if code != tc.code || (err == nil) != (tc.code == 0) {
				t.Errorf("exit code %d, want %d: %v", code, tc.code, err)
			}
			if err != nil && (!strings.Contains(err.Error(), "/etc/kubernetes/konnectivity-server.conf") || strings.Contains(err.Error(), root)) {
				t.Errorf("the error does not name the file as the node does: %v", err)
			}
			if lines := strings.Count(out, "\n"); lines != 4 || !strings.Contains(out, "system:konnectivity-server") {
				t.Errorf("%d lines:\n%s", lines, out)
			}
			text, _, _ := check(t, "--root", root, "-o", "json")
			var list []controlplane.Certificate
			if err := json.NewDecoder(bytes.NewBufferString(text)).Decode(&list); err != nil {
				t.Fatal(err)
			}
			for _, c := range list {
				if c.Subject == konnectivity.ServerUser && c.State != tc.state {
					t.Errorf("state %q, want %q", c.State, tc.state)
				}
			}
		})
	}
	if _, code, err := check(t, "--root", t.TempDir()); code != 1 || !strings.Contains(err.Error(), "missing") {
		t.Errorf("nothing there: exit code %d, %v", code, err)
	}
}
