// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// shell is a program that runs a script.
func shell(t *testing.T, name, script string) Spec {
	t.Helper()
	return Spec{Name: name, Path: "/bin/sh", Args: []string{"-c", script}, LogFile: filepath.Join(t.TempDir(), name+".log")}
}

// supervise runs a supervisor until the test ends and returns a function that stops it.
func supervise(t *testing.T, specs ...Spec) (*Supervisor, func()) {
	t.Helper()
	s, err := New(t.TempDir(), specs)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	stop := func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return s, stop
}

// eventually waits for a status of a program.
func eventually(t *testing.T, s *Supervisor, name, what string, ok func(Status) bool) Status {
	t.Helper()
	var status Status
	testutil.Eventually(t, time.Minute, func() error {
		status = Status{}
		for _, st := range s.Status() {
			if st.Name == name {
				status = st
			}
		}
		if !ok(status) {
			return fmt.Errorf("%s never was %s: %+v", name, what, status)
		}
		return nil
	})
	return status
}

func ready(s Status) bool { return s.Ready }

// until waits until something holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	testutil.Eventually(t, time.Minute, func() error {
		if !holds() {
			return errors.New("waited in vain for " + what)
		}
		return nil
	})
}

// made says whether a script has made a file, as it does when its traps are set.
func made(file string) func() bool {
	return func() bool { _, err := os.Stat(file); return err == nil }
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestRestartsWhatDies(t *testing.T) {
	t.Parallel()
	s, _ := supervise(t, shell(t, "a", "exec sleep 60"))
	first := eventually(t, s, "a", "ready", ready)
	if err := s.Kill("a"); err != nil {
		t.Fatal(err)
	}
	second := eventually(t, s, "a", "restarted", func(st Status) bool { return st.Ready && st.PID != first.PID })
	if second.Restarts != 1 {
		t.Errorf("restarts = %d, want 1", second.Restarts)
	}
}

func TestBacksOffLongerEachTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	starts := filepath.Join(dir, "starts")
	s, _ := supervise(t, shell(t, "a", "echo x >>"+starts+"; exit 3"))
	status := eventually(t, s, "a", "ended three times", func(st Status) bool { return st.Restarts == 3 })
	if status.State != BackingOff || !strings.Contains(status.Reason, "exit status 3") {
		t.Errorf("status = %+v, want backing off because of exit status 3", status)
	}
	began := time.Now()
	eventually(t, s, "a", "ended four times", func(st Status) bool { return st.Restarts == 4 })
	// The pauses are 1, 2 and 4 times the first one; the third is being waited for.
	if waited := time.Since(began); waited < 3*backoffFirst {
		t.Errorf("the fourth start came after %v: the pauses do not grow", waited)
	}
}

func TestReportsProgramThatCannotStart(t *testing.T) {
	t.Parallel()
	spec := shell(t, "a", "")
	spec.Path = filepath.Join(t.TempDir(), "missing")
	s, _ := supervise(t, spec)
	status := eventually(t, s, "a", "backing off", func(st Status) bool { return st.State == BackingOff })
	if !strings.Contains(status.Reason, "no such file") {
		t.Errorf("reason = %q, want the cause", status.Reason)
	}
}

func TestWaitsForDependencyAndFile(t *testing.T) {
	t.Parallel()
	var healthy atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !healthy.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	first := shell(t, "first", "exec sleep 60")
	first.Ready = &Probe{URL: server.URL}
	second := shell(t, "second", "exec sleep 60")
	second.After = []string{"first"}
	token := filepath.Join(t.TempDir(), "token")
	second.NeedsFiles = []string{token}
	s, _ := supervise(t, second, first)

	eventually(t, s, "first", "running", func(st Status) bool { return st.State == Running })
	waiting := eventually(t, s, "second", "waiting for first", func(st Status) bool { return st.Reason == "waiting for first" })
	if waiting.State != Waiting {
		t.Errorf("state = %s, want waiting", waiting.State)
	}
	healthy.Store(true)
	eventually(t, s, "second", "waiting for the file", func(st Status) bool { return st.Reason == "waiting for the file "+token })
	if err := os.WriteFile(token, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, s, "second", "ready", ready)
}

func TestStopsDependentsFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	order := filepath.Join(dir, "order")
	script := func(name string) string {
		return "trap 'echo " + name + " >>" + order + "; exit 0' TERM; : >" + dir + "/" + name + "; while :; do sleep 0.05; done"
	}
	base, user := shell(t, "base", script("base")), shell(t, "user", script("user"))
	user.After = []string{"base"}
	s, stop := supervise(t, base, user)
	eventually(t, s, "user", "ready", ready)
	for _, name := range []string{"base", "user"} {
		until(t, "the trap of "+name, made(filepath.Join(dir, name)))
	}
	stop()
	got, err := os.ReadFile(order)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != "user\nbase\n" {
		t.Errorf("stopped in the order %q, want user before base", got)
	}
}

func TestKillsWhatIgnoresSIGTERM(t *testing.T) {
	t.Parallel()
	trapped := filepath.Join(t.TempDir(), "trapped")
	spec := shell(t, "a", "trap '' TERM; : >"+trapped+"; while :; do sleep 0.05; done")
	spec.StopTimeout = 300 * time.Millisecond
	s, _ := supervise(t, spec)
	pid := eventually(t, s, "a", "ready", ready).PID
	until(t, "the trap", made(trapped))
	if err := s.Stop(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Errorf("process %d still runs", pid)
	}
	status := eventually(t, s, "a", "stopped", func(st Status) bool { return st.State == Stopped })
	if status.Restarts != 0 {
		t.Errorf("stopping counted as %d restarts", status.Restarts)
	}
	if err := s.Start("a"); err != nil {
		t.Fatal(err)
	}
	eventually(t, s, "a", "ready again", ready)
}

func TestStopsWhileBackingOffAndWaiting(t *testing.T) {
	t.Parallel()
	failing := shell(t, "failing", "exit 1")
	waiting := shell(t, "waiting", "exec sleep 60")
	waiting.NeedsFiles = []string{filepath.Join(t.TempDir(), "never")}
	s, _ := supervise(t, failing, waiting)
	eventually(t, s, "failing", "backing off", func(st Status) bool { return st.Restarts >= 2 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, name := range []string{"failing", "waiting"} {
		if err := s.Stop(ctx, name); err != nil {
			t.Errorf("stopping %s: %v", name, err)
		}
	}
}

func TestMarkedProcessesAreFoundAndKilled(t *testing.T) {
	t.Parallel()
	mark := t.TempDir()
	trapped := filepath.Join(t.TempDir(), "trapped")
	spec := shell(t, "a", "trap '' TERM; sleep 60 & : >"+trapped+"; while :; do sleep 0.05; done")
	s, err := New(mark, []Spec{spec})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	eventually(t, s, "a", "ready", ready)
	until(t, "the trap", made(trapped))
	until(t, "the shell and its child", func() bool { // a child that is being started has no marks for a moment
		found, err := FindMarked(mark)
		return err == nil && len(found) >= 2
	})
	if found, err := FindMarked(mark + "-other"); err != nil || len(found) != 0 {
		t.Errorf("FindMarked of another mark = %v, %v; want none", found, err)
	}
	u, _ := s.unit("a")
	u.setWant(false) // else the supervisor would restart what is killed below
	killed, err := KillMarked(t.Context(), mark, 200*time.Millisecond)
	if err != nil || killed < 2 {
		t.Errorf("KillMarked = %d, %v; want at least 2", killed, err)
	}
	if found, _ := FindMarked(mark); len(found) != 0 {
		t.Errorf("left over: %v", found)
	}
	cancel()
	<-done
}

func TestValidate(t *testing.T) {
	t.Parallel()
	ok := func(name string, after ...string) Spec {
		return Spec{Name: name, Path: "/bin/true", LogFile: "/tmp/" + name, After: after}
	}
	relative := ok("a")
	relative.Path = "true"
	for name, tc := range map[string]struct {
		specs []Spec
		want  string
	}{
		"good":     {[]Spec{ok("a"), ok("b", "a"), ok("c", "a", "b")}, ""},
		"nameless": {[]Spec{ok("")}, "no name"},
		"twice":    {[]Spec{ok("a"), ok("a")}, "twice"},
		"unknown":  {[]Spec{ok("a", "z")}, `"z"`},
		"circle":   {[]Spec{ok("a", "b"), ok("b", "a")}, "circle"},
		"itself":   {[]Spec{ok("a", "a")}, "circle"},
		"relative": {[]Spec{relative}, "absolute"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Validate(tc.specs)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("Validate = %v, want %q", err, tc.want)
			}
		})
	}
}

// The supervisor is killed together with its children: no process of a cluster
// may live on unobserved.
func TestChildrenDieWithTheirSupervisor(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("SUPERVISE_IN"); dir != "" {
		spec := Spec{Name: "a", Path: "/bin/sh", Args: []string{"-c", "echo $$ >" + dir + "/pid; exec sleep 60"}, LogFile: dir + "/log"}
		s, err := New(dir, []Spec{spec})
		if err != nil {
			t.Fatal(err)
		}
		s.Run(t.Context())
		return
	}
	dir := t.TempDir()
	parent, err := os.StartProcess(os.Args[0], []string{os.Args[0], "-test.run=^TestChildrenDieWithTheirSupervisor$"},
		&os.ProcAttr{Env: append(os.Environ(), "SUPERVISE_IN="+dir)})
	if err != nil {
		t.Fatal(err)
	}
	var child int
	until(t, "the child's PID", func() bool {
		data, _ := os.ReadFile(filepath.Join(dir, "pid"))
		child, _ = strconv.Atoi(strings.TrimSpace(string(data)))
		return child != 0
	})
	if !alive(child) {
		t.Fatalf("child %d does not run", child)
	}
	if err := parent.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = parent.Wait()
	until(t, "the end of the supervisor's child", func() bool { found, _ := FindMarked(dir); return len(found) == 0 })
}
