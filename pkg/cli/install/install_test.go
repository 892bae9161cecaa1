// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/cli/diff"
	"github.com/fairlead-dev/fairlead/pkg/cli/install"
	"github.com/fairlead-dev/fairlead/pkg/cli/uninstall"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

var commands = map[string]func(genericiooptions.IOStreams) *cobra.Command{
	"install": install.NewCommand, "diff": diff.NewCommand, "uninstall": uninstall.NewCommand,
}

// run returns both outputs and the exit code that the process would have.
func run(t *testing.T, name string, args ...string) (string, string, int) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := commands[name](genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
	cmd.GroupID, cmd.SilenceErrors, cmd.SilenceUsage = "", true, true
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	if err == nil {
		return out.String(), errOut.String(), 0
	}
	var code interface{ ExitCode() int }
	if errors.As(err, &code) {
		return out.String(), errOut.String() + err.Error(), code.ExitCode()
	}
	return out.String(), errOut.String() + err.Error(), 1
}

type want struct {
	code     int
	out, err string
}

func (w want) check(t *testing.T, out, err string, code int) {
	t.Helper()
	if code != w.code || !strings.Contains(out, w.out) || !strings.Contains(err, w.err) {
		t.Errorf("exit code %d, printed %q, error %q; want %+v", code, out, err, w)
	}
	if w.out == "" && out != "" {
		t.Errorf("printed %q", out)
	}
}

func TestMain(m *testing.M) { os.Exit(daemontest.RunShared(m)) }

// runOut runs a command with a time limit that grows until the command says what it has waited for. How long it takes until
// it waits depends on the machine.
func runOut(t *testing.T, w want, args ...string) {
	t.Helper()
	for limit := time.Second; ; limit *= 2 {
		out, err, code := run(t, args[0], append(args[1:], "--timeout", limit.String())...)
		if strings.Contains(err, w.err) || limit > time.Minute {
			w.check(t, out, err, code)
			return
		}
	}
}

func TestCommands(t *testing.T) {
	testutil.Limit(t, 3*time.Minute) // with eight busy loops
	cp := daemontest.TakeControlPlane(t)
	t.Setenv("KUBECONFIG", cp.Kubeconfig)
	other := filepath.Join(t.TempDir(), "other.yaml")
	if err := os.WriteFile(other, []byte(bundletest.File("scheduler: {replicas: 3}")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args []string
		want want
	}{
		{[]string{"diff"}, want{1, "+++ bundle: Deployment kube-system/my-scheduler", "15 of the bundle's objects"}},
		{[]string{"uninstall", "--yes"}, want{0, "", "Nothing is installed in context test"}},
		{[]string{"install", "--dry-run"}, want{0, "deployment.apps/my-scheduler created (server dry run)", "no nodes"}},
		{[]string{"install", "--wait=false"}, want{0, "deployment.apps/my-scheduler created\n", "Installing into context test"}},
		{[]string{"install", "--wait=false", "-o", "json"}, want{0, `"action": "unchanged"`, ""}},
		{[]string{"diff"}, want{0, "", ""}},
		{[]string{"diff", "-f", other}, want{1, "-  replicas: 2\n+  replicas: 3\n", "1 of the bundle's objects"}},
		{[]string{"diff", "-f", other, "-o", "json"}, want{1, `"action": "configured"`, ""}},
		{[]string{"install", "-q", waitsForever}, want{1, "", "DaemonSet kube-system/konnectivity-agent is not rolled out: its controller has not seen it yet"}},
		{[]string{"uninstall"}, want{1, "", "stdin is not a terminal"}},
		{[]string{"uninstall", "--dry-run", "-o", "name"}, want{0, "deployment.apps/my-scheduler\n", ""}},
		{[]string{"uninstall", "--yes"}, want{0, "deployment.apps/my-scheduler deleted\n", ""}},
		{[]string{"uninstall", "--dry-run"}, want{0, "", ""}},
		{[]string{"install", "--context", "nobody"}, want{1, "", "--context takes one of: test"}},
		{[]string{"diff", "--context", "nobody"}, want{2, "", "--context takes one of: test"}},
		{[]string{"install", "--name", "b7"}, want{1, "", `no context "fairlead-b7"`}},
		{[]string{"uninstall", "--name", "b7"}, want{1, "", `no context "fairlead-b7"`}},
		{[]string{"diff", "--name", "b7"}, want{2, "", `no context "fairlead-b7"`}},
		{[]string{"diff", "--name", "b7", "--context", "test"}, want{2, "", "remove one of them"}},
		{[]string{"diff", "--name", ""}, want{2, "", "use lower-case letters"}},
		{[]string{"install", "--server", "https://127.0.0.1:1"}, want{1, "", "connection refused"}},
	} {
		t.Run(strings.Join(step.args, " "), func(t *testing.T) {
			if last := len(step.args) - 1; step.args[last] == waitsForever {
				runOut(t, step.want, step.args[:last]...)
				return
			}
			out, err, code := run(t, step.args[0], step.args[1:]...)
			step.want.check(t, out, err, code)
		})
	}
}

// waitsForever marks a step of TestCommands that ends with its time limit.
const waitsForever = "--timeout"

// TestName proves that --name finds the named cluster's context where another one is
// the current one.
func TestName(t *testing.T) {
	testutil.Limit(t, 3*time.Minute) // with eight busy loops
	cp := daemontest.TakeControlPlane(t)
	config, err := clientcmd.LoadFromFile(cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	current := config.Contexts[config.CurrentContext]
	config.Contexts["fairlead-b7"] = current
	config.Clusters["elsewhere"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.Contexts["elsewhere"] = &clientcmdapi.Context{Cluster: "elsewhere", AuthInfo: current.AuthInfo}
	config.CurrentContext = "elsewhere"
	file := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	for _, step := range []struct {
		args []string
		want want
	}{
		{[]string{"diff", "--name", "b7"}, want{1, "+++ bundle: Deployment kube-system/my-scheduler", "context fairlead-b7"}},
		{[]string{"install", "--name", "b7", "--dry-run"}, want{0, "deployment.apps/my-scheduler created (server dry run)", "Installing into context fairlead-b7"}},
		{[]string{"uninstall", "--name", "b7", "--yes"}, want{0, "", "Nothing is installed in context fairlead-b7"}},
	} {
		out, err, code := run(t, step.args[0], step.args[1:]...)
		step.want.check(t, out, err, code)
	}
}

func TestWithoutCluster(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "config")
	t.Setenv("KUBECONFIG", empty)
	t.Setenv("HOME", t.TempDir())
	for _, step := range []struct {
		args []string
		want want
	}{
		{[]string{"install", "--dry-run=client"}, want{0, "deployment.apps/my-scheduler applied (client dry run)\n", ""}},
		{[]string{"install", "--dry-run=client", "-o", "name"}, want{0, "serviceaccount/my-scheduler\n", ""}},
		{[]string{"install"}, want{1, "", "no kubeconfig with a context found"}},
		{[]string{"diff"}, want{2, "", "no kubeconfig with a context found"}},
		{[]string{"diff", "--nonsense"}, want{2, "", "nonsense"}},
		{[]string{"diff", "-f", empty}, want{2, "", "--filename: open " + empty}},
		{[]string{"install", "--dry-run=maybe"}, want{1, "", "choose none, client or server"}},
		{[]string{"install", "-o", "xml"}, want{1, "", "choose json, yaml or name"}},
		{[]string{"install", "--timeout", "0s"}, want{1, "", "--timeout 0s"}},
		{[]string{"uninstall", "--timeout", "-1s"}, want{1, "", "--timeout -1s"}},
	} {
		t.Run(strings.Join(step.args, " "), func(t *testing.T) {
			out, err, code := run(t, step.args[0], step.args[1:]...)
			step.want.check(t, out, err, code)
		})
	}
}
