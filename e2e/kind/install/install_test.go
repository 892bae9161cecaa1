// SPDX-License-Identifier: Apache-2.0

// Package install_test installs the bundle on an existing control plane, proves
// that it works, and uninstalls it: the cluster is then as it was before.
package install_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kind/pkg/cluster/nodes"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
	"github.com/fairlead-dev/fairlead/pkg/nodeimage"
)

var suite = harness.New(harness.Options{Name: "plain", Only: harness.Kind, Plain: true}, prepare)

func TestMain(m *testing.M) { os.Exit(suite.Main(m)) }

// prepare brings fairlead into the control plane node and its images everywhere.
func prepare(ctx context.Context, c *harness.Cluster) error {
	if err := c.LoadProject(); err != nil {
		return err
	}
	program, err := os.Open(filepath.Join(c.Bin, "fairlead"))
	if err != nil {
		return err
	}
	defer program.Close()
	node := c.Nodes.ControlPlanes[0]
	if err := node.CommandContext(ctx, "sh", "-c", "cat > /usr/local/bin/fairlead && chmod 0755 /usr/local/bin/fairlead").SetStdin(program).Run(); err != nil {
		return fmt.Errorf("copying fairlead into %s: %w", node, err)
	}
	_, err = c.StartServer(ctx)
	return err
}

// node is the control plane's only one.
func node() nodes.Node { return suite.Nodes.ControlPlanes[0] }

// inNode runs fairlead in the control plane node, which has to succeed.
func inNode(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := harness.Run(ctx, node(), "fairlead", args...)
	t.Logf("fairlead %s\n%s", strings.Join(args, " "), out)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// here runs fairlead on this machine, as the cluster's administrator does.
func here(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	r, err := suite.Try(ctx, append(args, "--context", suite.Context())...)
	t.Logf("fairlead %s\n%s%s", strings.Join(args, " "), r.Stdout, r.Stderr)
	if err != nil || r.Code != 0 {
		t.Fatalf("exit code %d, %v", r.Code, err)
	}
	return r.Stdout + r.Stderr
}

// The bundle is installed on the control plane and in the cluster, and
// uninstalled again: kubeconfig, egress selector configuration, flags and
// mounts of kube-apiserver, static Pod, RBAC objects and agents.
// It observes SCHED-02, SCHED-22 and SCHED-23 of docs/requirements.md.
// It also observes KON-06, KON-09, KON-24, KON-36 and KON-83 of docs/requirements.md.
func TestInstallAndUninstall(t *testing.T) {
	var before, between state
	asBefore := func(ctx context.Context, t *testing.T) {
		t.Helper()
		wantNoServer(ctx, t)
		before.wantEqual(t, look(ctx, t, node()))
		wantCalls(ctx, t)
	}
	suite.Steps(t, "install",
		harness.Step{Name: "the cluster works before", Do: func(ctx context.Context, t *testing.T) {
			before = look(ctx, t, node())
			wantCalls(ctx, t)
		}},
		harness.Step{Name: "a dry run changes nothing", Do: func(ctx context.Context, t *testing.T) {
			inNode(ctx, t, "controlplane", "install", "--dry-run")
			before.wantEqual(t, look(ctx, t, node()))
		}},
		harness.Step{Name: "a server that cannot start is taken back", Do: func(ctx context.Context, t *testing.T) { brokenServers(ctx, t, asBefore) }},
		harness.Step{Name: "an interrupt takes kube-apiserver's change back", Do: func(ctx context.Context, t *testing.T) {
			outage := watchAPI(ctx)
			wantTexts(t, cutOff(ctx, t, "TERM"), "ended with 130", "interrupted", "everything was put back")
			asBefore(ctx, t)
			tunneltest.Unavailable(t, outage()) // for the table of make chaos
		}},
		harness.Step{Name: "server, agents, then kube-apiserver, killed half-way", Do: func(ctx context.Context, t *testing.T) {
			inNode(ctx, t, "controlplane", "install", "--server-only")
			here(ctx, t, "install")
			wantTexts(t, cutOff(ctx, t, "KILL"), "ended with 137")
			if out, err := harness.Run(ctx, node(), "test", "-f", journal); err != nil {
				t.Errorf("it was not killed half-way: %v %s", err, out)
			}
			wantTexts(t, inNode(ctx, t, "controlplane", "install"), "an earlier install of", "did not end")
			if out := here(ctx, t, "install"); strings.Contains(out, "no egress selector yet") {
				t.Errorf("the API still shows the kube-apiserver from before:\n%s", out)
			}
			between = look(ctx, t, node())
			if len(between.files) <= len(before.files) || len(between.objects) <= len(before.objects) {
				t.Errorf("there are %d files and %d objects, before there were %d and %d", len(between.files), len(between.objects), len(before.files), len(before.objects))
			}
		}},
		harness.Step{Name: "installing again changes nothing", Do: func(ctx context.Context, t *testing.T) {
			here(ctx, t, "install")
			inNode(ctx, t, "controlplane", "install")
			between.wantEqual(t, look(ctx, t, node()))
		}},
		harness.Step{Name: "all checks pass", Do: func(ctx context.Context, t *testing.T) {
			here(ctx, t, "verify", "--disruptive", "--image", nodeimage.PodImage)
		}},
		harness.Step{Name: "certificates are renewed, and no dial fails", Do: renewUnderLoad},
		harness.Step{Name: "the tunnel is the only way", Do: func(ctx context.Context, t *testing.T) {
			firewall, err := suite.RaiseFirewall(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := firewall.Tight(); err != nil {
				t.Error(err)
			}
			wantCalls(ctx, t)
			if err := firewall.Lower(ctx); err != nil {
				t.Fatal(err)
			}
		}},
		harness.Step{Name: "the operator applies a Bundle, and leaves what it applied", Do: operator},
		harness.Step{Name: "scheduler and gateway are static Pods", Do: staticPods},
		harness.Step{Name: "kube-scheduler has profiles of its own", Do: defaultScheduler},
		harness.Step{Name: "it goes without a trace", Do: func(ctx context.Context, t *testing.T) {
			inNode(ctx, t, "controlplane", "uninstall")
			wantCalls(ctx, t) // while agents are still there, and need not be
			here(ctx, t, "uninstall", "--yes")
			asBefore(ctx, t)
		}},
	)
}

// wantNoServer checks that the kubelet has stopped the server and that the API
// does not show its Pod any more. Right after a change the API still shows the
// old Pod.
func wantNoServer(ctx context.Context, t *testing.T) {
	t.Helper()
	name := konnectivity.ServerName + "-" + node().String()
	err := harness.Wait(ctx, time.Minute, "Pod "+name+" to be gone", func(ctx context.Context) error {
		pod, err := suite.Client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("it is %s", pod.Status.Phase)
	})
	if err != nil {
		t.Error(err)
	}
}

// wantCalls checks that the API server reaches all kubelets, Pods and Services.
// Right after a change of its manifest it may still be coming up.
func wantCalls(ctx context.Context, t *testing.T) {
	t.Helper()
	err := harness.Wait(ctx, time.Minute, "calls to work", func(ctx context.Context) error {
		var errs []error
		for _, node := range suite.Nodes.All() {
			errs = append(errs, suite.NodeHealthz(ctx, node.String()))
		}
		_, err := suite.ServiceGet(ctx, "healthz", nil)
		return errors.Join(append(errs, err)...)
	})
	if err != nil {
		t.Error(err)
	}
}
