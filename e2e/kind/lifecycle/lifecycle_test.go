// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/e2e/harness"
)

// The names of the clusters; life is the one that all steps but the first are about.
var (
	life        = harness.ClusterName("life")
	interrupted = harness.ClusterName("int")
	failing     = harness.ClusterName("fail")
	taken       = harness.ClusterName("taken")
)

// The whole life of one cluster, and others that are interrupted at the same
// time. The steps build on each other, so the cluster, which takes minutes, is
// created only once.
func TestLifecycle(t *testing.T) {
	var killed []harness.Container // of life, before it lived
	suite.Steps(t, "lifecycle",
		harness.Step{Name: "cut off while it is made", Do: func(ctx context.Context, t *testing.T) {
			atOnce(ctx, t,
				harness.Step{Name: "interrupted: nothing is left", Do: interrupt},
				harness.Step{Name: "killed: down cleans up", Do: func(ctx context.Context, t *testing.T) { killed = killAndDown(ctx, t) }},
			)
		}},
		harness.Step{Name: "made, and another one fails", Do: func(ctx context.Context, t *testing.T) {
			atOnce(ctx, t,
				harness.Step{Name: "up after the kill, and only one at a time", Do: func(ctx context.Context, t *testing.T) { makeMain(ctx, t, killed) }},
				harness.Step{Name: "failed: kept with --retain, removed without", Do: fail},
			)
		}},
		harness.Step{Name: "status and list", Do: func(ctx context.Context, t *testing.T) { wantHealthy(ctx, t) }},
		harness.Step{Name: "up again changes nothing", Do: upAgain},
		harness.Step{Name: "the operator applies a Bundle", Do: withOperator},
		harness.Step{Name: "another size or image is refused", Do: refuse},
		harness.Step{Name: "a cluster of another user is never touched", Do: foreignCluster},
		harness.Step{Name: "a container of another user is never touched", Do: foreignContainer},
		harness.Step{Name: "stopped and started", Do: stopAndStart},
		harness.Step{Name: "down leaves nothing", Do: func(ctx context.Context, t *testing.T) {
			had := containers(ctx, t, life)
			try(ctx, t, suite.Home, 0, nil, "down", "--name", life)
			nothingLeft(ctx, t, suite.Home, life, had)
			try(ctx, t, suite.Home, 0, []string{"nothing to remove"}, "down", "--name", life)
			if entries, _ := filepath.Glob(suite.Dir + "/state/*"); len(entries) > 0 {
				t.Errorf("the state directory still holds %v", entries)
			}
		}},
	)
}

// interrupt sends SIGINT while kubeadm is at work.
func interrupt(ctx context.Context, t *testing.T) {
	b := begin(ctx, t, interrupted, kubeadmRuns, upArgs(interrupted, 0)...)
	wantSaid(t, b.end(t, syscall.SIGINT), 130, "interrupted")
	nothingLeft(ctx, t, suite.Home, interrupted, b.before)
}

// killAndDown sends SIGKILL as soon as there is a container, while others are
// still being made. The status of what it leaves is foreignCluster's.
func killAndDown(ctx context.Context, t *testing.T) []harness.Container {
	b := begin(ctx, t, life, nil, upArgs(life, 1, "--operator")...)
	b.end(t, syscall.SIGKILL)
	copyState(t)
	try(ctx, t, suite.Home, 0, nil, "down", "--name", life) // at once: commands of the runtime are still at work
	nothingLeft(ctx, t, suite.Home, life, b.before)
	return b.before
}

// copyState copies the state of a killed "up" into the home directory of
// another user. Before that user cleans up, the cluster name may belong to
// another cluster.
func copyState(t *testing.T) {
	t.Helper()
	if err := os.CopyFS(somebodyElse().StateDir(life), os.DirFS(suite.StateDir(life))); err != nil {
		t.Fatal(err)
	}
}

// somebodyElse returns the home of another user of this machine: a directory
// below ours, which is removed with ours.
func somebodyElse() *harness.Home {
	h := *suite.Home
	h.Dir = filepath.Join(h.Dir, "somebody")
	h.Env = append(append([]string{}, h.Env...), "HOME="+h.Dir, "XDG_STATE_HOME="+h.Dir+"/state")
	return &h
}

// makeMain brings up the cluster whose "up" was killed, with the quick checks.
func makeMain(ctx context.Context, t *testing.T, killed []harness.Container) {
	b := begin(ctx, t, life, nil, upArgs(life, 1, "--operator")...)
	const busy = "another fairlead command is working on this cluster"
	try(ctx, t, suite.Home, 1, []string{busy}, upArgs(life, 1, "--operator")...)
	try(ctx, t, suite.Home, 1, []string{busy}, "down", "--name", life)
	wantSaid(t, b.wait(t), 0, "kubectl --context fairlead-"+life)
	for _, now := range containers(ctx, t, life) {
		for _, old := range killed {
			if now.ID == old.ID {
				t.Errorf("%s is that of the up that was killed", now.Name)
			}
		}
	}
}

// fail lets a node die while the cluster is made, twice.
func fail(ctx context.Context, t *testing.T) {
	dies := func(more ...string) (harness.Result, []harness.Container) {
		b := begin(ctx, t, failing, kubeadmRuns, upArgs(failing, 0, more...)...)
		if _, err := harness.Runtime(ctx, "kill", b.before[0].ID); err != nil {
			t.Fatal(err)
		}
		return b.wait(t), b.before
	}
	r, had := dies("--retain")
	wantSaid(t, r, 1, "kept for inspection: "+suite.StateDir(failing), "fairlead down --name "+failing)
	if now := containers(ctx, t, failing); len(now) != 1 || now[0].ID != had[0].ID {
		t.Errorf("--retain kept %+v, want %+v", now, had)
	}
	for _, file := range []string{"cluster.json", "config/kind.yaml", "logs/kind.log"} {
		if _, err := os.Stat(filepath.Join(suite.StateDir(failing), file)); err != nil {
			t.Errorf("--retain did not keep it: %v", err)
		}
	}
	try(ctx, t, suite.Home, 0, nil, "down", "--name", failing)
	nothingLeft(ctx, t, suite.Home, failing, had)

	r, had = dies()
	logs := suite.FailedLogs(failing)
	wantSaid(t, r, 1, "removed what was made; logs of kind and of the nodes are in "+logs)
	if _, err := os.Stat(filepath.Join(logs, "kind.log")); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(logs); err != nil {
		t.Error(err)
	}
	nothingLeft(ctx, t, suite.Home, failing, had)
}

func wantHealthy(ctx context.Context, t *testing.T) status {
	t.Helper()
	node := "fairlead-" + life + "-control-plane"
	try(ctx, t, suite.Home, 0, []string{"Cluster " + life + ": ready", "1 control plane node and 1 worker", node, "konnectivity-agent"}, "status", "--name", life, "--wait", "1m")
	s := look(ctx, t, life)
	if !s.Healthy || !s.Running || s.Nodes != 2 || len(s.Containers) != 2 || len(s.Parts) != 3 {
		t.Errorf("status: %+v", s)
	}
	for _, c := range s.Containers {
		if c.State != "ready" {
			t.Errorf("status: %+v", c)
		}
	}
	list := try(ctx, t, suite.Home, 0, []string{life}, "list").Stdout
	if strings.Contains(list, interrupted) || strings.Contains(list, failing) || !strings.Contains(list, "ready") {
		t.Errorf("list:\n%s", list)
	}
	return s
}

func upAgain(ctx context.Context, t *testing.T) {
	before := containers(ctx, t, life)
	// The provider is known by the name.
	try(ctx, t, suite.Home, 0, []string{"is running already"}, "up", "--name", life, "--no-verify")
	same(ctx, t, before)
}

// refuse asks for settings that the cluster does not have, which "up" rejects.
func refuse(ctx context.Context, t *testing.T) {
	before := containers(ctx, t, life)
	try(ctx, t, suite.Home, 1, []string{"1 worker", "fairlead down --name " + life}, upArgs(life, 2)...)
	try(ctx, t, suite.Home, 1, []string{"1 control plane"}, upArgs(life, 1, "--control-planes", "3")...)
	try(ctx, t, suite.Home, 1, []string{"image " + harness.NodeImage()}, "up", "--name", life, "--image", "kindest/node:other")
	try(ctx, t, suite.Home, 1, []string{"exists with --provider kind"}, "up", "--name", life, "--provider", harness.Embedded)
	same(ctx, t, before)
}

// foreignCluster tests the same cluster as another user sees it, who has
// another state directory: first one without a cluster of that name, then one
// with the remains of such a cluster.
func foreignCluster(ctx context.Context, t *testing.T) {
	before := containers(ctx, t, life)
	other := somebodyElse()
	try(ctx, t, other, 1, []string{"half-made", "fairlead down --name " + life}, "status", "--name", life)
	try(ctx, t, other, 1, []string{"an earlier \"up\" was cut off", "fairlead down --name " + life}, upArgs(life, 1)...)
	try(ctx, t, other, 0, nil, "down", "--name", life)
	if _, err := os.Stat(other.StateDir(life)); !os.IsNotExist(err) {
		t.Errorf("down did not remove %s (%v)", other.StateDir(life), err)
	}
	same(ctx, t, before)
	try(ctx, t, other, 1, []string{"the name is taken", "was not made from " + filepath.Dir(other.StateDir(life)), "use another --name"}, upArgs(life, 1)...)
	try(ctx, t, other, 0, []string{"nothing to remove"}, "down", "--name", life)
	same(ctx, t, before)
	wantHealthy(ctx, t)
}

// foreignContainer creates a container that has the name of a node and is not
// one.
func foreignContainer(ctx context.Context, t *testing.T) {
	name := "fairlead-" + taken + "-worker"
	// It ends by itself, should this test be killed.
	if _, err := harness.Runtime(ctx, "run", "--detach", "--rm", "--name", name, "--entrypoint", "/bin/sleep", harness.NodeImage(), "300"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = harness.Runtime(context.WithoutCancel(ctx), "rm", "--force", "--volumes", name) })
	before, err := harness.Inspect(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	try(ctx, t, suite.Home, 1, []string{"the name is taken", name, "use another --name"}, upArgs(taken, 1)...)
	nothingLeft(ctx, t, suite.Home, taken, nil)
	same(ctx, t, before)
}

// stopAndStart stops the nodes, as a restart of the machine does.
func stopAndStart(ctx context.Context, t *testing.T) {
	before := wantHealthy(ctx, t)
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string]string{"a": "b"}}
	if _, err := client(ctx, t).CoreV1().ConfigMaps("default").Create(ctx, kept, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	nodes := containers(ctx, t, life)
	hint := []string{"is stopped: start it with ", "fairlead up --name " + life}
	stop := func(c harness.Container) {
		if _, err := harness.Runtime(ctx, "stop", c.ID); err != nil {
			t.Fatal(err)
		}
	}
	stop(nodes[1]) // the worker, by its name
	try(ctx, t, suite.Home, 1, append(hint, nodes[1].Name+" is stopped"), "status", "--name", life)
	stop(nodes[0])
	try(ctx, t, suite.Home, 1, append(hint, fmt.Sprintf("cluster %q is stopped", life)), "status", "--name", life)
	try(ctx, t, suite.Home, 0, []string{"stopped"}, "list")

	try(ctx, t, suite.Home, 0, []string{"Starting 2 stopped containers"}, "up", "--name", life) // with the quick checks
	if after := wantHealthy(ctx, t); after.Server != before.Server {
		t.Errorf("the API server moved from %s to %s", before.Server, after.Server)
	}
	for i, now := range containers(ctx, t, life) {
		if now.ID != nodes[i].ID || now.State.StartedAt == nodes[i].State.StartedAt {
			t.Errorf("%s was not started again: %+v, before %+v", now.Name, now, nodes[i])
		}
	}
	got, err := client(ctx, t).CoreV1().ConfigMaps("default").Get(ctx, kept.Name, metav1.GetOptions{})
	if err != nil || got.Data["a"] != "b" {
		t.Errorf("data of before: %v, %v", got, err)
	}
}

func client(ctx context.Context, t *testing.T) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(clientConfig(ctx, t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func clientConfig(ctx context.Context, t *testing.T) *rest.Config {
	t.Helper()
	text, err := suite.Must(ctx, "kubeconfig", "--name", life)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return config
}
