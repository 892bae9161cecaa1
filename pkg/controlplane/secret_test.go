// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
	"github.com/fairlead-dev/fairlead/pkg/internal/redact"
)

// TestDryRunsShowNoKeys: what a dry run prints, as text and as JSON, holds no private key and no token, whatever the files are called
// and whether they are made, replaced or removed.
func TestDryRunsShowNoKeys(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	options := func() Options {
		o := testOptions(root)
		o.Bundle = tcpBundle()
		k := &o.Bundle.Konnectivity
		k.Server.KeyFile, k.Transport.TCP.ClientKey = "/etc/kubernetes/pki/server-key.pem", "/etc/kubernetes/pki/client-secret"
		if tcp := k.Transport.TCP; tcp.ServerKey != "" {
			tcp.ServerCert, tcp.ServerKey = k.Server.CertFile, k.Server.KeyFile
		}
		return o
	}
	silent := func(diffs []FileDiff, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(diffs)
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.ReplaceAll(string(data), `\n`, "\n"); len(diffs) == 0 || redact.IsSecret([]byte(text)) || strings.Contains(text, "PRIVATE KEY") {
			t.Errorf("%d changes, or a key is shown:\n%s", len(diffs), text)
		}
	}
	silent(PlanInstall(t.Context(), options()))
	if _, err := Install(t.Context(), options()); err != nil {
		t.Fatal(err)
	}
	uninstall := func(o Options) {
		t.Helper()
		diffs, _, err := PlanUninstall(t.Context(), o)
		silent(diffs, err)
		hidden := 0
		for _, d := range diffs {
			data, err := nodefs.Host{Root: root}.Read(d.Path)
			if err == nil && strings.Contains(string(data), "PRIVATE KEY") {
				hidden++
				if !d.Secret || d.Diff != "" {
					t.Errorf("%s of %s: secret %v, diff %q", d.Action, d.Path, d.Secret, d.Diff)
				}
			}
		}
		if hidden < 2 {
			t.Errorf("only %d keys are removed: the test is of no use", hidden)
		}
	}
	uninstall(options())
	// The bundle given now does not name these files; the state of the installation does.
	o := options()
	o.Bundle = nil
	uninstall(o)
	if _, err := os.Stat(nodefs.Host{Root: root}.Path("/etc/kubernetes/pki/client-secret")); errors.Is(err, os.ErrNotExist) {
		t.Error("the dry run has removed a key")
	}
}
