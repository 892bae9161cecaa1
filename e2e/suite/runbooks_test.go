// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
)

// notInSuite are commands of runbooks that this cluster cannot run, by how they begin, with the reason.
var notInSuite = map[string]string{
	"kubectl --namespace kube-system top pods":      "it needs metrics-server",
	"kubectl --namespace kube-system rollout":       "it changes the cluster that other tests use",
	"fairlead install --filename bundle.yaml":       "it changes the cluster; e2e/kind/install runs it",
	"fairlead crd migrate --all":                    "it changes definitions that other tests use; pkg/crd runs it",
	"sudo fairlead controlplane install --filename": "fairlead up has made the node's files; e2e/kind/install runs it",
	"sudo fairlead certs renew":                     "it changes the node; e2e/kind/install runs it",
	"sudo kubeadm certs renew":                      "it changes the node; e2e/kind/install runs it",
	"sudo crictl":                                   "the node image of this project has no crictl",
	"sudo grep -- --server-id":                      "the server of this cluster has no such flag",
}

// TestRunbooks runs the commands of docs/runbooks as a reader would: with kubectl and fairlead in PATH and a kubeconfig; those
// with sudo on a control plane node, where nodes are real. Each must succeed on a healthy cluster.
func TestRunbooks(t *testing.T) {
	testutil.Full(t, "runs every command of the runbooks")
	run(t, "commands of the runbooks", pagesLimit, step{"each command", func(ctx context.Context, t *testing.T) {
		reader := newReader(ctx, t)
		commands := pageCommands(t, "../../docs/runbooks/*.md")
		excepted, ran := excepts(notInSuite), 0
		defer excepted.unused(t)
		for _, command := range slices.Sorted(maps.Keys(commands)) {
			if excepted.has(command) || strings.HasPrefix(command, "sudo ") && suite.Simulated() {
				continue
			}
			ran++
			t.Run(command, func(t *testing.T) {
				if out, err := reader.run(ctx, command); err != nil && !differs(command, out, err) {
					t.Errorf("%v: %v\n%s", commands[command], err, out)
				}
			})
		}
		if ran < 20 {
			t.Errorf("only %d commands ran", ran)
		}
	}})
}

// differs reports whether a command has shown differences: fairlead up has made the cluster, with another bundle than the reader's. On kind
// it says that the bundle is that of fairlead up, which a reader's is not.
func differs(command, out string, err error) bool {
	var exit *exec.ExitError
	if !strings.HasPrefix(command, "fairlead diff ") || !errors.As(err, &exit) {
		return false
	}
	if suite.Simulated() {
		return exit.ExitCode() == 1 && strings.Contains(out, "\n+++ ")
	}
	return exit.ExitCode() == 2 && strings.Contains(out, "belongs to the bundle of `fairlead up`, which made this cluster")
}

// exceptions are commands that a test leaves out, by how they begin, with the reasons.
type exceptions struct {
	reasons map[string]string
	used    map[string]bool
}

func excepts(reasons map[string]string) *exceptions { return &exceptions{reasons, map[string]bool{}} }

// has reports whether a command is one of them.
func (e *exceptions) has(command string) (found bool) {
	for prefix := range e.reasons {
		if strings.HasPrefix(command, prefix) {
			e.used[prefix], found = true, true
		}
	}
	return found
}

// wrong are exceptions that have matched no command, or say no reason.
func (e *exceptions) wrong() (list []string) {
	for prefix, reason := range e.reasons {
		if !e.used[prefix] || reason == "" {
			list = append(list, prefix)
		}
	}
	return list
}

func (e *exceptions) unused(t *testing.T) {
	t.Helper()
	for _, prefix := range e.wrong() {
		t.Errorf("exception %q: want a reason, and a command that begins so", prefix)
	}
}

// pageCommands are the lines of all blocks of shell commands, with the pages that have them.
func pageCommands(t *testing.T, pattern string) map[string][]string {
	t.Helper()
	pages, err := filepath.Glob(pattern)
	if err != nil || len(pages) < 25 {
		t.Fatalf("%s: %d pages: %v", pattern, len(pages), err)
	}
	out := map[string][]string{}
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		inside := false
		for line := range strings.Lines(string(data)) {
			switch line = strings.TrimSpace(line); {
			case strings.HasPrefix(line, "```"):
				inside = line == "```sh"
			case inside && line != "" && !strings.HasPrefix(line, "#"):
				out[line] = append(out[line], filepath.Base(page))
			}
		}
	}
	return out
}

// reader has what a reader of the runbooks has.
type reader struct {
	dir, path, node string
	// verified are the bundles with which all checks have run.
	verified map[string]bool
}

func newReader(ctx context.Context, t *testing.T) *reader {
	t.Helper()
	kubectl, err := suite.BuildKubectl(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{dir: t.TempDir(), path: filepath.Dir(kubectl) + ":" + suite.Bin, verified: map[string]bool{}}
	bundle := []byte(bundletest.File("gateway: {enabled: true}\ntunnelAPI: {enabled: true}"))
	writeFile(t, filepath.Join(r.dir, "bundle.yaml"), bundle)
	writeFile(t, filepath.Join(r.dir, "audit.log"), []byte(`{"result":"unauthenticated"}`+"\n")) // of a proxy
	list, err := suite.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("nodes: %v", err)
	}
	r.node = list.Items[0].Name
	if suite.Simulated() {
		return r
	}
	program, err := os.ReadFile(filepath.Join(suite.Bin, "fairlead"))
	if err != nil {
		t.Fatal(err)
	}
	for file, data := range map[string][]byte{"/usr/local/bin/fairlead": program, "/bundle.yaml": bundle} {
		node := suite.Nodes.ControlPlanes[0]
		if err := node.CommandContext(ctx, "sh", "-c", "cat > "+file+" && chmod 755 "+file).SetStdin(bytes.NewReader(data)).Run(); err != nil {
			t.Fatalf("write %s of %s: %v", file, node, err)
		}
	}
	return r
}

// run runs a command on this machine, or without sudo on a control plane node.
func (r *reader) run(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	command = strings.NewReplacer("/nodes/NODE/", "/nodes/"+r.node+"/", "apiservice NAME", "apiservice v1.apps").Replace(command)
	if strings.HasPrefix(command, "sudo ") {
		return harness.Run(ctx, suite.Nodes.ControlPlanes[0], "bash", "-c", "set -o pipefail; cd /; "+strings.ReplaceAll(command, "sudo ", ""))
	}
	cmd, stdout, stderr := suite.Program(ctx, "bash", "-c", "set -o pipefail; "+command)
	cmd.Dir = r.dir
	cmd.Env = append(cmd.Environ(), "PATH="+r.path+":"+os.Getenv("PATH"))
	if err := cmd.Run(); err != nil {
		return fmt.Sprintf("%s%s", stdout, stderr), err
	}
	return stdout.String(), nil
}
