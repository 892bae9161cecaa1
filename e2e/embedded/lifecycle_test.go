// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
)

func pidText(pid int) string { return strconv.Itoa(pid) }

// client makes a client from what "fairlead kubeconfig" prints.
func (h *home) client(name string) kubernetes.Interface {
	h.t.Helper()
	client, err := kubernetes.NewForConfig(h.restConfig(name))
	if err != nil {
		h.t.Fatal(err)
	}
	return client
}

func (h *home) restConfig(name string) *rest.Config {
	h.t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(h.must("kubeconfig", "--name", name)))
	if err != nil {
		h.t.Fatal(err)
	}
	return config
}

// The whole life of one cluster. The steps build on each other, so the cluster,
// which takes minutes, is created only once.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	out := h.must("up")
	if !strings.Contains(out, "kubectl --context fairlead-dev") {
		t.Errorf("up does not say how to go on:\n%s", out)
	}
	first := h.status("dev")
	if !first.Healthy || first.Nodes != 3 {
		t.Fatalf("status after up: %+v", first)
	}
	t.Run("everything listens on loopback but the node gate", func(t *testing.T) { checkListeners(t, first) })
	t.Run("files of the caller are not kept", func(t *testing.T) { checkInherited(t, h, first) })
	t.Run("keys are private", func(t *testing.T) { checkModes(t, h.StateDir("dev")) })
	t.Run("up again changes nothing", func(t *testing.T) {
		h.must("up")
		for i, p := range h.status("dev").Processes {
			if p.PID != first.Processes[i].PID || p.Restarts != 0 {
				t.Errorf("%s was restarted", p.Name)
			}
		}
	})
	t.Run("a refused up leaves it as it was", func(t *testing.T) { refusedUp(t, h, first) })
	t.Run("up with another size is refused", func(t *testing.T) {
		h.try("up", "--nodes", "5").want(t, 1, "3 nodes", "down --name dev")
	})
	t.Run("the tunnel's socket is private", func(t *testing.T) { checkSocket(t, h) })
	t.Run("RBAC is just enough", func(t *testing.T) { checkRBAC(t, h) })
	t.Run("agents prove who they are", func(t *testing.T) { checkAgentTokens(t, h) })
	t.Run("nodes say whether they have an agent", func(t *testing.T) { checkTunnelConditions(t, h) })
	t.Run("up starts what a killed check has stopped", func(t *testing.T) {
		if err := h.supervisor("dev").Stop(t.Context(), "konnectivity-agent-0"); err != nil {
			t.Fatal(err)
		}
		h.try("verify", "--only", "api-server").want(t, 1)
		h.must("up", "--no-verify")
		h.must("status", "--name", "dev", "--wait", "60s")
		if s := h.status("dev"); !s.Healthy {
			t.Errorf("status after up: %+v", s)
		}
	})
	t.Run("a program that dies is restarted", func(t *testing.T) { killOne(t, h) })
	t.Run("a second cluster lives beside it", func(t *testing.T) { sideBySide(t, h) })
	t.Run("it comes back after everything was killed", func(t *testing.T) { killAll(t, h) })
	h.must("down")
	h.nothingLeft("dev")
	if entries, _ := filepath.Glob(h.Dir + "/state/*"); len(entries) > 0 {
		t.Errorf("the state directory still holds %v", entries)
	}
	h.try("down").want(t, 0, "nothing to remove")
}

// refusedUp runs commands that fairlead rejects, and checks that files and
// processes do not change.
func refusedUp(t *testing.T, h *home, before status) {
	state := filepath.Join(h.StateDir("dev"), "cluster.json")
	want, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(h.Dir, "bundle.yaml")
	if err := os.WriteFile(file, []byte(bundletest.File("scheduler: {replicas: 5}")), 0o600); err != nil {
		t.Fatal(err)
	}
	h.try("up", "-f", file).want(t, 1, "another bundle")
	h.try("up", "--agents", "7").want(t, 1, "2 agents")
	h.try("up", "--api-server-port", "1").want(t, 1, "--api-server-port")
	if got, err := os.ReadFile(state); err != nil || string(got) != string(want) {
		t.Errorf("the state changed (%v):\n%s\n%s", err, want, got)
	}
	for i, p := range h.status("dev").Processes {
		if p.PID != before.Processes[i].PID {
			t.Errorf("%s was restarted", p.Name)
		}
	}
}

// checkListeners reads the kernel's table of listening sockets: those of the
// cluster's processes must be on loopback, and only the node gate elsewhere,
// because the API server refuses to proxy to loopback nodes.
func checkListeners(t *testing.T, s status) {
	owner := map[string]string{}
	for _, p := range s.Processes {
		for inode := range socketsOf(t, p.PID) {
			owner[inode] = p.Name
		}
	}
	seen := map[string]int{}
	for _, l := range listeners(t) {
		name, ours := owner[l.inode]
		if !ours {
			continue
		}
		seen[name]++
		want := net.IPv4(127, 0, 0, 1)
		if name == "node-gate" {
			want = net.ParseIP(s.HostIP)
		}
		if !l.ip.Equal(want) {
			t.Errorf("%s listens on %s, want %s", name, l.ip, want)
		}
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kwok", "node-gate", "konnectivity-server", "second-scheduler-1"} {
		if seen[name] == 0 {
			t.Errorf("%s listens on nothing: this test looks in the wrong place", name)
		}
	}
}

// checkInherited checks that no process of the cluster holds the file, for
// example a lock, that every command inherits.
func checkInherited(t *testing.T, h *home, s status) {
	open := 0
	for _, pid := range append([]int{s.SupervisorPID}, pids(s)...) {
		fds, _ := filepath.Glob(filepath.Join("/proc", pidText(pid), "fd", "*"))
		open += len(fds)
		for _, fd := range fds {
			if file, _ := os.Readlink(fd); file == h.held.Name() {
				t.Errorf("process %d holds %s", pid, file)
			}
		}
	}
	if open == 0 {
		t.Error("no open file was found: this test looks in the wrong place")
	}
}

func pids(s status) []int {
	var list []int
	for _, p := range s.Processes {
		list = append(list, p.PID)
	}
	return list
}

// checkModes checks that other users can read no key and no kubeconfig.
func checkModes(t *testing.T, dir string) {
	secret := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		private := d.IsDir() || strings.HasSuffix(path, ".key") || strings.HasSuffix(path, ".kubeconfig") || filepath.Base(path) == "token"
		if private && info.Mode().Type() != os.ModeSocket && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if private && !d.IsDir() {
			secret++
		}
		return nil
	})
	if err != nil || secret < 10 {
		t.Errorf("found %d secrets, %v", secret, err)
	}
}

func killOne(t *testing.T, h *home) {
	before := h.status("dev").find(t, "kube-scheduler")
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.must("status", "--name", "dev", "--wait", "60s")
	after := h.status("dev").find(t, "kube-scheduler")
	if after.PID == before.PID || after.Restarts != before.Restarts+1 {
		t.Errorf("before %+v, after %+v; want a new process and one restart more", before, after)
	}
}

func sideBySide(t *testing.T, h *home) {
	h.must("up", "--name", "other", "--nodes", "1", "--agents", "1", "-q")
	nodes, err := h.client("other").CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 {
		t.Errorf("the second cluster has %d nodes, %v; want 1", len(nodes.Items), err)
	}
	list := h.must("list")
	for _, want := range []string{"dev", "other"} {
		if !strings.Contains(list, "fairlead-"+want) {
			t.Errorf("list lacks %s:\n%s", want, list)
		}
	}
	h.must("down", "--name", "other")
	h.nothingLeft("other")
	h.must("status", "--name", "dev", "--wait", "60s")
	if s := h.status("dev"); !s.Healthy {
		t.Errorf("removing one cluster hurt the other: %+v", s)
	}
}

// killAll kills the supervisor and with it its children, like a crash or a
// restart of the machine, and brings the cluster up again.
func killAll(t *testing.T, h *home) {
	ctx := context.WithoutCancel(t.Context())
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string]string{"a": "b"}}
	if _, err := h.client("dev").CoreV1().ConfigMaps("default").Create(ctx, kept, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s := h.status("dev")
	if err := syscall.Kill(s.SupervisorPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Processes {
		waitFor(t, p.Name+" to end with the supervisor", func() bool { return syscall.Kill(p.PID, 0) != nil })
	}
	h.try("status").want(t, 1, "stopped", "up --name dev")
	h.must("up")
	if after := h.status("dev"); after.Server != s.Server {
		t.Errorf("the API server moved from %s to %s", s.Server, after.Server)
	}
	got, err := h.client("dev").CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{})
	if err != nil || fmt.Sprint(got.Data) != fmt.Sprint(kept.Data) {
		t.Errorf("data of before: %v, %v", got, err)
	}
}

// A bundle may switch a part off. Its checks are skipped with the reason, and
// the rest of the cluster works.
func TestPartsSwitchedOff(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	file := filepath.Join(h.Dir, "bundle.yaml")
	bundle := bundletest.File("konnectivity: {enabled: false}\nscheduler: {replicas: 1, name: other, profiles: [{schedulerName: other}]}")
	if err := os.WriteFile(file, []byte(bundle), 0o600); err != nil {
		t.Fatal(err)
	}
	r := h.try("up", "-f", file, "--nodes", "1")
	r.want(t, 0, "konnectivity.enabled: false", "7 skipped")
	for _, p := range h.status("dev").Processes {
		if strings.HasPrefix(p.Name, "konnectivity") {
			t.Errorf("%s runs", p.Name)
		}
	}
	h.try("verify", "--only", "tunnel-logs").want(t, 1, "could not run")
	h.try("verify", "--only", "scheduler-three-pods").want(t, 0)
	h.must("down")
	h.nothingLeft("dev")
}
