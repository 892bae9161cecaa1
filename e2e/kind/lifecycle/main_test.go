// SPDX-License-Identifier: Apache-2.0

// Package lifecycle_test tests the life cycle of kind clusters: interrupted while
// they are created, failed, created, found again, stopped and started, removed.
// Nothing is left behind, and clusters and containers of other users are never
// touched.
package lifecycle_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/harness"
)

var suite = harness.New(harness.Options{Name: harness.ClusterName("life"), Only: harness.Kind, Bare: true})

func TestMain(m *testing.M) { os.Exit(suite.Main(m)) }

// atOnce runs steps at the same time.
func atOnce(ctx context.Context, t *testing.T, steps ...harness.Step) {
	t.Run("at once", func(t *testing.T) {
		for _, s := range steps {
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				s.Do(ctx, t)
			})
		}
	})
}

// upArgs make a small cluster, with as few workers as given.
func upArgs(name string, workers int, more ...string) []string {
	return append([]string{"up", "--provider", harness.Kind, "--name", name, "--workers", fmt.Sprint(workers), "--image", harness.NodeImage()}, more...)
}

// try runs fairlead and wants an exit code, and texts in what it says.
func try(ctx context.Context, t *testing.T, h *harness.Home, code int, says []string, args ...string) harness.Result {
	t.Helper()
	begin := time.Now()
	r, err := h.Try(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("fairlead %s: exit code %d after %s\n%s%s", strings.Join(args, " "), r.Code, time.Since(begin).Round(100*time.Millisecond), r.Stdout, r.Stderr)
	wantSaid(t, r, code, says...)
	return r
}

func wantSaid(t *testing.T, r harness.Result, code int, says ...string) {
	t.Helper()
	if r.Code != code {
		t.Errorf("exit code %d, want %d\n%s", r.Code, code, r.Stderr)
	}
	for _, text := range says {
		if !strings.Contains(r.Stdout+r.Stderr, text) {
			t.Errorf("fairlead does not say %q:\n%s%s", text, r.Stdout, r.Stderr)
		}
	}
}

// begun is an up that is at work.
type begun struct {
	cmd            *exec.Cmd
	stdout, stderr *bytes.Buffer
	ended          chan struct{}
	// before are the containers that the cluster had when begin returned.
	before []harness.Container
}

// begin starts an up and returns when its cluster has a container for which until
// holds; nil: any.
func begin(ctx context.Context, t *testing.T, name string, until func(context.Context, harness.Container) bool, args ...string) *begun {
	t.Helper()
	b := &begun{ended: make(chan struct{})}
	b.cmd, b.stdout, b.stderr = suite.Command(ctx, args...)
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = b.cmd.Wait() // its exit code is looked at
		close(b.ended)
	}()
	err := harness.Wait(ctx, 2*time.Minute, "containers of cluster "+name, func(ctx context.Context) error {
		list, err := harness.Containers(ctx, name)
		if err != nil {
			return err
		}
		for _, c := range list {
			if until == nil || c.State.Running && until(ctx, c) {
				b.before = list
				return nil
			}
		}
		return errors.New("not yet")
	})
	if err != nil {
		_ = b.cmd.Process.Kill()
		<-b.ended
		t.Fatalf("%v\n%s%s", err, b.stdout, b.stderr)
	}
	return b
}

// kubeadmRuns reports whether a node is becoming a control plane.
func kubeadmRuns(ctx context.Context, c harness.Container) bool {
	_, err := harness.Runtime(ctx, "exec", c.ID, "pgrep", "-f", "^kubeadm init")
	return err == nil
}

// end signals an up and returns how it ended.
func (b *begun) end(t *testing.T, sig os.Signal) harness.Result {
	t.Helper()
	if err := b.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	return b.wait(t)
}

func (b *begun) wait(t *testing.T) harness.Result {
	t.Helper()
	begin := time.Now()
	<-b.ended
	r := harness.Result{Stdout: b.stdout.String(), Stderr: b.stderr.String(), Code: b.cmd.ProcessState.ExitCode()}
	t.Logf("up ended %s later with %d\n%s%s", time.Since(begin).Round(100*time.Millisecond), r.Code, r.Stdout, r.Stderr)
	return r
}

// nothingLeft checks that no container, volume, file or context is left of a
// cluster that had these containers.
func nothingLeft(ctx context.Context, t *testing.T, h *harness.Home, name string, had []harness.Container) {
	t.Helper()
	if left, err := harness.Containers(ctx, name); err != nil || len(left) > 0 {
		t.Errorf("containers are left: %+v (%v)", left, err)
	}
	for _, v := range harness.Volumes(had) {
		if out, err := harness.Runtime(ctx, "volume", "inspect", v); err == nil {
			t.Errorf("a volume is left: %s", out)
		}
	}
	for _, path := range []string{h.StateDir(name), h.StateDir(name) + ".lock", h.FailedLogs(name)} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left (%v)", path, err)
		}
	}
	if data, _ := os.ReadFile(h.Kubeconfig()); bytes.Contains(data, []byte("fairlead-"+name+"\n")) {
		t.Errorf("the kubeconfig still has the context:\n%s", data)
	}
}

// same checks that containers were neither replaced nor restarted.
func same(ctx context.Context, t *testing.T, before []harness.Container) {
	t.Helper()
	for _, c := range before {
		now, err := harness.Inspect(ctx, c.ID)
		if err != nil || len(now) != 1 || now[0].State != c.State || now[0].Name != c.Name {
			t.Errorf("container %+v was touched: now %+v (%v)", c, now, err)
		}
	}
}

// containers are those of a cluster that has some.
func containers(ctx context.Context, t *testing.T, name string) []harness.Container {
	t.Helper()
	list, err := harness.Containers(ctx, name)
	if err != nil || len(list) == 0 {
		t.Fatalf("cluster %s has the containers %v (%v)", name, list, err)
	}
	return list
}

// status is what "fairlead status -o json" says of components.
type status struct {
	Running, Healthy bool
	Nodes            int
	Server, Phase    string
	Containers       []struct{ Name, Role, State string }
	Parts            []struct {
		Name        string
		Ready, Want int
	}
}

// look reads the status, and wants an exit code that fits it.
func look(ctx context.Context, t *testing.T, name string) status {
	t.Helper()
	r, err := suite.Try(ctx, "status", "--name", name, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var shown struct{ Components status }
	if err := json.Unmarshal([]byte(r.Stdout), &shown); err != nil {
		t.Fatalf("status: %v\n%s%s", err, r.Stdout, r.Stderr)
	}
	s := shown.Components
	if s.Healthy != (r.Code == 0) {
		t.Errorf("exit code %d of a cluster of which healthy is %t", r.Code, s.Healthy)
	}
	return s
}
