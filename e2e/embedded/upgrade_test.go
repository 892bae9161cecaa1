// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

const (
	upgraded = "upgrade"
	// callsPerSecond are of each kind.
	callsPerSecond = 2
)

// upgradedPrograms are of this project, in the order in which the test replaces them.
var upgradedPrograms = []string{"second-scheduler-", "konnectivity-agent-", "konnectivity-server", "fairlead-apiserver"}

// TestUpgrade: a cluster of an earlier version is upgraded to this one while it is used: the programs on the disk are
// replaced, "fairlead up" applies the objects of this version, and one process after the other starts again, as a rollout
// does. No call through the tunnel fails. After a restart of the machine the cluster has this version's arguments, too.
func TestUpgrade(t *testing.T) {
	earlier := os.Getenv(harness.EarlierPrograms)
	if earlier == "" {
		t.Skipf("%s does not name a directory with the programs of an earlier version: use make e2e-upgrade", harness.EarlierPrograms)
	}
	bin := t.TempDir()
	replacePrograms(t, earlier, bin)
	made, err := harness.NewHome(bin, harness.HomePrefix())
	if err != nil {
		t.Fatal(err)
	}
	h := homeOf(t, made)
	t.Logf("from %s", strings.TrimSpace(h.must("version", "--client")))
	c, err := harness.Up(t.Context(), h.Home, harness.Embedded, harness.Options{Name: upgraded, Bundle: "tunnelAPI: {enabled: true}"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	underCalls(t, c, func() {
		before := running(t, h)
		replacePrograms(t, binDir, bin)
		h.must("up", "--name", upgraded, "--no-verify")
		for _, name := range upgradedPrograms {
			if err := c.Processes(name).Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for name, p := range running(t, h) {
			if p.PID == before[name].PID {
				t.Errorf("%s was not replaced", name)
			}
			if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID)); err != nil || strings.HasSuffix(exe, "(deleted)") {
				t.Errorf("%s runs %s (%v), want the program of this version", name, exe, err)
			}
		}
	})
	t.Logf("to %s", strings.TrimSpace(h.must("version", "--client")))
	h.must("verify", "--context", c.Context())
	restartMachine(t, h)
	h.must("down", "--name", upgraded)
	h.nothingLeft(upgraded)
}

// replacePrograms puts programs in the place of others as a package manager does: running processes keep theirs.
func replacePrograms(t *testing.T, from, to string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if err := replaceFile(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

func replaceFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}

// running are the processes of upgradedPrograms.
func running(t *testing.T, h *home) map[string]process.Status {
	t.Helper()
	all := map[string]process.Status{}
	for _, p := range h.status(upgraded).Processes {
		for _, prefix := range upgradedPrograms {
			if strings.HasPrefix(p.Name, prefix) {
				all[p.Name] = p
			}
		}
	}
	if len(all) < len(upgradedPrograms) {
		t.Fatalf("processes %v, want some of each of %v", all, upgradedPrograms)
	}
	return all
}

// underCalls does something while calls of each kind are made. None of these fails, and streams break cleanly at most.
func underCalls(t *testing.T, c *harness.Cluster, do func()) {
	t.Helper()
	ca, err := c.StartServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, register := range []func(context.Context, []byte) (func(context.Context) error, error){c.RegisterWebhook, c.RegisterAPI} {
		if _, err := register(t.Context(), ca); err != nil {
			t.Fatal(err)
		}
	}
	streams, err := harness.StartStreams(t.Context(), 1, c.LongStreams())
	if err != nil {
		t.Fatal(err)
	}
	loads := map[string]*harness.Load{}
	for name, call := range callsOf(c) {
		if err := harness.Wait(t.Context(), time.Minute, name, call); err != nil { // kube-apiserver learns of webhooks and APIs in a moment
			t.Fatal(err)
		}
		loads[name] = harness.StartLoad(t.Context(), callsPerSecond, call)
	}
	time.Sleep(2 * time.Second) // the load before anything happens
	begin := time.Now()
	do()
	took := time.Since(begin)
	time.Sleep(5 * time.Second) // the load after it
	for name, l := range loads {
		d := l.Stop()
		t.Logf("%s: %s", name, d)
		if d.Failed > 0 || d.Made < int(took.Seconds())*callsPerSecond/2 {
			t.Errorf("%s: %d of %d calls in %s failed", name, d.Failed, d.Made, took)
		}
	}
	s := streams.Stop()
	t.Logf("the upgrade took %s: %s", took.Round(time.Second), s)
	for _, b := range s.Broken {
		if strings.Contains(b, harness.ErrCorrupt.Error()) || strings.Contains(b, harness.ErrStalled.Error()) {
			t.Errorf("a stream must end cleanly: %s", b)
		}
	}
}

// callsOf are the kinds of calls that kube-apiserver makes through the tunnel.
func callsOf(c *harness.Cluster) map[string]func(context.Context) error {
	calls := c.Calls()
	calls["webhook"] = func(ctx context.Context) error {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "reviewed-"}}
		_, err := c.Client.CoreV1().ConfigMaps(harness.Namespace).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	calls["aggregated API"] = func(ctx context.Context) error {
		return c.Client.CoreV1().RESTClient().Get().AbsPath(harness.Whoami).Do(ctx).Error()
	}
	return calls
}

// restartMachine ends all processes as a shutdown does, and starts the cluster again, which verifies it.
func restartMachine(t *testing.T, h *home) {
	t.Helper()
	if err := syscall.Kill(h.status(upgraded).SupervisorPID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := harness.Wait(t.Context(), 2*time.Minute, "all processes to end", func(context.Context) error {
		left, err := process.FindMarked(h.StateDir(upgraded))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("processes %v are left", left)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	h.must("up", "--name", upgraded)
}
