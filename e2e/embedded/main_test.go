// SPDX-License-Identifier: Apache-2.0

// Package embedded_test drives the built fairlead binary as a user does: it
// brings embedded clusters up and down in a home directory of its own, with
// real etcd, kube-apiserver and tunnel, and looks at what is left behind.
//
// The first run builds Kubernetes into the user's cache, which takes minutes.
package embedded_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// binDir holds the binaries under test.
var binDir string

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	flag.Parse()
	if testing.Short() {
		fmt.Fprintln(os.Stderr, "these tests need clusters; none runs with -short")
		return 0, nil
	}
	harness.SweepUp(context.Background())
	dir, done, err := harness.BuildPrograms(context.Background())
	if err != nil {
		return 1, err
	}
	defer done()
	binDir = dir
	return m.Run(), nil
}

// homeLimit is how long a test with a home may take: it brings up clusters, and waits for Leases and timeouts.
const homeLimit = 10 * time.Minute

// home is the home directory of a user, which has only the cache of built
// components.
type home struct {
	*harness.Home
	t    *testing.T
	user *userID
	// held is a file that every command inherits.
	held *os.File
}

func newHome(t *testing.T) *home {
	t.Helper()
	made, err := harness.NewHome(binDir, harness.HomePrefix())
	if err != nil {
		t.Fatal(err)
	}
	return homeOf(t, made)
}

func homeOf(t *testing.T, made *harness.Home) *home {
	t.Helper()
	testutil.Limit(t, homeLimit)
	var err error
	h := &home{Home: made, t: t}
	if h.held, err = os.Create(filepath.Join(h.Dir, "held")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.cleanUp)
	return h
}

// cleanUp removes what a failed test left, and fails one that left processes.
func (h *home) cleanUp() {
	dirs, _ := filepath.Glob(h.StateDir("*"))
	for _, dir := range dirs {
		if left, _ := process.FindMarked(dir); len(left) > 0 {
			h.t.Logf("ending processes %v of %s", left, dir)
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			_, _ = process.KillMarked(ctx, dir, 5*time.Second)
			cancel()
		}
		if h.t.Failed() {
			h.showLogs(dir)
		}
	}
	_ = h.held.Close()
	_ = os.RemoveAll(h.Dir)
}

// showLogs prints the end of every log of a cluster of a failed test.
func (h *home) showLogs(dir string) {
	logs, _ := filepath.Glob(filepath.Join(dir, "logs", "*.log"))
	for _, log := range logs {
		data, _ := os.ReadFile(log)
		h.t.Logf("--- %s\n%s", log, data[max(0, len(data)-2000):])
	}
}

// result is how a command ended.
type result harness.Result

// command prepares fairlead with arguments.
func (h *home) command(ctx context.Context, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	cmd, stdout, stderr := h.Command(ctx, args...)
	h.user.apply(cmd)
	cmd.ExtraFiles = []*os.File{h.held}
	return cmd, stdout, stderr
}

// try runs fairlead and returns how it ended.
func (h *home) try(args ...string) result {
	h.t.Helper()
	// Building the components takes some minutes where there is no cache yet.
	ctx, cancel := context.WithTimeout(h.t.Context(), 25*time.Minute)
	defer cancel()
	cmd, stdout, stderr := h.command(ctx, args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Fatalf("fairlead %v: %v", args, err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// must runs fairlead and wants it to succeed.
func (h *home) must(args ...string) string {
	h.t.Helper()
	r := h.try(args...)
	if r.Code != 0 {
		h.t.Fatalf("fairlead %v ended with %d\n%s%s", args, r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// status is what "fairlead status -o json" says of components.
type status struct {
	Running, Healthy bool
	Nodes            int
	SupervisorPID    int
	RSSBytes         int64
	Server           string
	HostIP           string
	Processes        []process.Status
}

func (h *home) status(name string) status {
	h.t.Helper()
	r := h.try("status", "--name", name, "-o", "json")
	var s struct{ Components status }
	if err := json.Unmarshal([]byte(r.Stdout), &s); err != nil {
		h.t.Fatalf("status: %v\n%s%s", err, r.Stdout, r.Stderr)
	}
	return s.Components
}

func (s status) find(t *testing.T, name string) process.Status {
	t.Helper()
	for _, p := range s.Processes {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no process %s in %+v", name, s.Processes)
	return process.Status{}
}

// nothingLeft checks that no process, file, socket or context of a cluster is
// left.
func (h *home) nothingLeft(name string) {
	h.t.Helper()
	if left, err := process.FindMarked(h.StateDir(name)); err != nil || len(left) > 0 {
		h.t.Errorf("processes %v are left (%v)", left, err)
	}
	for _, path := range []string{h.StateDir(name), h.StateDir(name) + ".lock"} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			h.t.Errorf("%s is left (%v)", path, err)
		}
	}
	if data, _ := os.ReadFile(h.Kubeconfig()); bytes.Contains(data, []byte("fairlead-"+name+"\n")) {
		h.t.Errorf("the kubeconfig still has the context:\n%s", data)
	}
}

// want checks that an error contains all of these texts.
func (r result) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.Code != code {
		t.Errorf("exit code %d, want %d\n%s", r.Code, code, r.Stderr)
	}
	for _, text := range texts {
		if !strings.Contains(r.Stderr, text) {
			t.Errorf("standard error lacks %q:\n%s", text, r.Stderr)
		}
	}
}

func containsContext(kubeconfig []byte) bool { return bytes.Contains(kubeconfig, []byte("fairlead-")) }
