// SPDX-License-Identifier: Apache-2.0

package checkcmd

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules/report"
)

// run returns what the command prints, and its exit code.
func run(t *testing.T, args ...string) (string, int, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := NewCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}, nil)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	var code *Error
	switch {
	case err == nil:
		return out.String(), 0, nil
	case errors.As(err, &code):
		return out.String(), code.Code, err
	}
	return out.String(), 1, err
}

// kubeconfig points to a port of this machine on which no program listens.
func kubeconfig(t *testing.T) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:" + daemontest.Ports(t, 1)[0], InsecureSkipTLSVerify: true}
	config.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: "x"}
	config.Contexts["gone"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	config.CurrentContext = "gone"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestDown proves that a cluster that does not answer is a failed check with its reason and a fix, soon, and with exit code 1 in every format.
func TestDown(t *testing.T) {
	file := kubeconfig(t)
	for _, format := range report.Formats {
		begin := time.Now()
		out, code, err := run(t, "--kubeconfig", file, "-o", format)
		if code != 1 || !strings.Contains(out, "FL-API-001") || !strings.Contains(out, "connection refused") || !strings.Contains(out, "fairlead up") {
			t.Errorf("-o %s: exit code %d, %v\n%s", format, code, err, out)
		}
		if took := time.Since(begin); took > 60*time.Second {
			t.Errorf("-o %s took %s", format, took)
		}
	}
	if out, code, err := run(t, "--kubeconfig", file, "--suppress", "FL-API-001"); code != 0 {
		t.Errorf("suppressed: exit code %d, %v\n%s", code, err, out)
	}
}

// TestOnlyDown proves that a job that makes some checks alone fails in every format if the API server does not answer, and says why: it would
// otherwise pass with every certificate unseen.
func TestOnlyDown(t *testing.T) {
	file := kubeconfig(t)
	for _, format := range report.Formats {
		for _, failOn := range []string{"failed", "unknown", "warning"} {
			out, code, err := run(t, "--kubeconfig", file, "-o", format, "--only", "FL-CRT-*", "--fail-on", failOn)
			if code != 1 || !strings.Contains(out, "FL-API-001") || !strings.Contains(out, "connection refused") || strings.Contains(out, "FL-API-002") {
				t.Errorf("-o %s --fail-on %s: exit code %d, %v\n%s", format, failOn, code, err, out)
			}
		}
	}
	// What needs no API server is made.
	if out, code, err := run(t, "--kubeconfig", file, "--only", "FL-API-008", "--fail-on", "warning"); code != 0 || strings.Contains(out, "FL-API-001") {
		t.Errorf("exit code %d, %v\n%s", code, err, out)
	}
}

// TestWrongUsage proves that wrong flags end with exit code 2, name the flag, and say what to choose.
func TestWrongUsage(t *testing.T) {
	file := kubeconfig(t)
	bundle := filepath.Join(t.TempDir(), "bundle.yaml")
	if err := os.WriteFile(bundle, []byte("kind: Nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"-o", "xml"}, "--output"},
		{[]string{"--fail-on", "never"}, "--fail-on"},
		{[]string{"--timeout", "11s"}, "--timeout"},
		{[]string{"--suppress", "FL-NO-1"}, "matches no check"},
		{[]string{"--suppress", "FL-EXT-001=["}, "syntax error in pattern"},
		{[]string{"--only", "FL-NO-1"}, "matches no check"},
		{[]string{"--only", "FL-API-001=Node a"}, "matches no check"},
		{[]string{"--only", "FL-PRE-010"}, "add --pre"},
		{[]string{"--only", "FL-API-*", "--only", "FL-PRE-*"}, "add --pre"},
		{[]string{"--only", "FL-API-*,FL-PRE-*"}, "add --pre"},
		{[]string{"--only", "FL-API-001,FL-NO-1"}, "\"FL-NO-1\" matches no check"},
		{[]string{"--pre", "--only", "FL-KON-005"}, "leave out --pre"},
		{[]string{"--explain", "FL-NO-1"}, "fairlead check --list"},
		{[]string{"--context", "missing"}, "gone"},
		{[]string{"--kubeconfig", "/does/not/exist"}, "kubeconfig"},
		{[]string{"-f", bundle}, bundle},
	} {
		if out, code, err := run(t, append([]string{"--kubeconfig", file}, tc.args...)...); code != 2 || err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: exit code %d, %v\n%s", tc.args, code, err, out)
		}
	}
}

// TestList proves that --list and --explain know every check, without a cluster.
func TestList(t *testing.T) {
	out, code, err := run(t, "--list")
	if code != 0 {
		t.Fatal(err)
	}
	for _, r := range rules.All() {
		if !strings.Contains(out, r.ID) {
			t.Errorf("--list lacks %s", r.ID)
		}
		if text, code, _ := run(t, "--explain", r.ID); code != 0 || !strings.Contains(text, r.Fix) {
			t.Errorf("--explain %s: exit code %d\n%s", r.ID, code, text)
		}
	}
}
