// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"errors"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// notOfChecks are commands of docs/checks that a healthy cluster cannot run, by how they begin, with the reason.
var notOfChecks = map[string]string{
	"timedatectl set-ntp":                          "it changes this machine",
	"kubeadm ":                                     "it changes the node",
	"fairlead certs renew":                         "it changes the node; e2e/kind/install runs it",
	"fairlead controlplane install":                "it changes the node; e2e/kind/install runs it",
	"fairlead install":                             "it changes the cluster; e2e/kind/install runs it",
	"ls -l /etc/kubernetes/konnectivity-server":    "this machine is no control plane node",
	"chmod 0700 /etc/kubernetes/konnectivity-serv": "it changes the node",
	"crictl ": "the node image of this project has no crictl",
}

// ofPods are commands about Pods of the tunnel and the scheduler, which are processes in an embedded cluster.
var ofPods = []string{"kubectl -n kube-system describe daemonset", "kubectl -n kube-system logs"}

// TestCheckPages runs the commands of docs/checks as a reader would. Each must succeed on a healthy cluster. The checks before an installation may find
// that there is one already, and must still run.
func TestCheckPages(t *testing.T) {
	testutil.Full(t, "runs every command of the pages of checks")
	run(t, "commands of the pages of checks", pagesLimit, step{"each command", func(ctx context.Context, t *testing.T) {
		reader := newReader(ctx, t)
		commands := pageCommands(t, "../../docs/checks/*.md")
		excepted, ran := excepts(notOfChecks), 0
		defer excepted.unused(t)
		var some errgroup.Group
		some.SetLimit(4)
		for _, command := range slices.Sorted(maps.Keys(commands)) {
			begins := func(prefix string) bool { return strings.HasPrefix(command, prefix) }
			if excepted.has(command) || suite.Simulated() && slices.ContainsFunc(ofPods, begins) {
				continue
			}
			ran++
			follow := func() {
				out, err := reader.run(ctx, command)
				var exit *exec.ExitError
				if begins("fairlead check --pre ") && errors.As(err, &exit) && exit.ExitCode() == 1 {
					err = nil
				}
				if strings.Contains(command, "| grep ") && errors.As(err, &exit) && exit.ExitCode() == 1 && out == "" {
					err = nil // the log of a healthy program has no such line
				}
				if err != nil && !differs(command, out, err) {
					t.Errorf("%v: %s: %v\n%s", commands[command], command, err, out)
				}
			}
			if begins("fairlead check ") { // most only read, and wait for the cluster
				some.Go(func() error { follow(); return nil })
				continue
			}
			follow()
		}
		_ = some.Wait()
		if ran < 70 {
			t.Errorf("only %d commands ran", ran)
		}
	}})
}
