// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

// offered is what a shell offers after a command line.
func offered(t *testing.T, args ...string) []string {
	t.Helper()
	var out, errOut bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}
	if code := run(NewCommand(streams), append([]string{cobra.ShellCompRequestCmd}, args...), streams); code != 0 {
		t.Fatalf("%v: exit code %d\n%s", args, code, &errOut)
	}
	var values []string
	for line := range strings.Lines(out.String()) {
		value, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		values = append(values, value)
	}
	return values[:len(values)-1] // the last line is the directive
}

// every calls do with each command that a user can see and its path below the program.
func every(cmd *cobra.Command, path []string, do func(cmd *cobra.Command, path []string)) {
	do(cmd, path)
	for _, below := range cmd.Commands() {
		if !below.Hidden && below.Name() != "help" && below.Name() != "completion" {
			every(below, append(slices.Clone(path), below.Name()), do)
		}
	}
}

// TestCompletionEverywhere proves that a shell completes --context, --namespace and --output of every command that has them, also below other commands,
// and the checks of "fairlead verify --only".
func TestCompletionEverywhere(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"NamespaceList","apiVersion":"v1","items":[{"metadata":{"name":"kube-system"}},{"metadata":{"name":"shop"}}]}`))
	}))
	t.Cleanup(api.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: api.URL}
	config.Contexts["prod"], config.Contexts["test"] = &clientcmdapi.Context{Cluster: "c"}, &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "prod"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	t.Setenv("HOME", t.TempDir())
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	contexts, below, formats := 0, 0, 0
	every(NewCommand(streams), nil, func(cmd *cobra.Command, path []string) {
		if cmd.Flags().Lookup("context") != nil {
			contexts++
			if len(path) > 1 {
				below++
			}
			if got := offered(t, append(slices.Clone(path), "--context", "")...); !slices.Equal(got, []string{"prod", "test"}) {
				t.Errorf("%v --context: %v", path, got)
			}
		}
		if cmd.Flags().Lookup("namespace") != nil {
			if got := offered(t, append(slices.Clone(path), "--namespace", "")...); !slices.Equal(got, []string{"kube-system", "shop"}) {
				t.Errorf("%v --namespace: %v", path, got)
			}
		}
		if cmd.Flags().Lookup("output") != nil && cmd.Name() != "sysdump" { // whose output is a file
			formats++
			if got := offered(t, append(slices.Clone(path), "--output", "")...); !slices.Contains(got, "json") || len(got) < 2 {
				t.Errorf("%v --output: %v", path, got)
			}
		}
	})
	if contexts < 8 || below < 2 || formats < 12 {
		t.Errorf("only %d commands with --context, %d of them below others, and %d with --output", contexts, below, formats)
	}
	if got := offered(t, "verify", "--only", ""); len(got) != len(check.All()) || got[0] != check.All()[0].ID {
		t.Errorf("verify --only: %v", got)
	}
	if got := offered(t, "status", "--output", ""); !slices.Equal(got, []string{"json", "yaml", "wide"}) {
		t.Errorf("status --output: %v", got)
	}
}

// TestPlugin proves that the plugin of kubectl says in its help and errors how it was called.
func TestPlugin(t *testing.T) {
	args := os.Args
	t.Cleanup(func() { os.Args = args })
	for name, want := range map[string]string{"kubectl-fairlead": "  kubectl fairlead [command]", "fairlead": "  fairlead [command]"} {
		os.Args = []string{"/usr/local/bin/" + name}
		var out bytes.Buffer
		streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}
		if code := run(NewCommand(streams), nil, streams); code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit code %d, no %q in\n%s", name, code, want, &out)
		}
	}
	os.Args = []string{"/usr/local/bin/kubectl-fairlead"}
	var out bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}
	if code := run(NewCommand(streams), []string{"status", "--no-such-flag"}, streams); code == 0 || !strings.Contains(out.String(), `see "kubectl fairlead status --help"`) {
		t.Errorf("exit code %d\n%s", code, &out)
	}
}
