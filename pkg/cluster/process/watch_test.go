// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// A program that stops answering is no longer ready, although it still runs.
func TestReadinessIsWatched(t *testing.T) {
	t.Parallel()
	var sick atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if sick.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	spec := shell(t, "a", "exec sleep 60")
	spec.Ready = &Probe{URL: server.URL}
	s, _ := supervise(t, spec)
	eventually(t, s, "a", "ready", ready)
	sick.Store(true)
	status := eventually(t, s, "a", "not ready", func(st Status) bool { return !st.Ready })
	if status.State != Running || status.Restarts != 0 {
		t.Errorf("status = %+v, want it running all the time", status)
	}
	sick.Store(false)
	eventually(t, s, "a", "ready again", ready)
}

// TestTCPProbe: a probe succeeds once a process listens. The port is bound all the time, so that no other test gets it.
func TestTCPProbe(t *testing.T) {
	t.Parallel()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	probe := &Probe{URL: fmt.Sprintf("tcp://127.0.0.1:%d", bound.(*unix.SockaddrInet4).Port)}
	if err := probe.Check(t.Context()); err == nil {
		t.Error("no process listens, but the probe succeeds")
	}
	if err := unix.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	if err := probe.Check(t.Context()); err != nil {
		t.Errorf("a process listens, but the probe fails: %v", err)
	}
}

// The processes that a program started are killed with it.
func TestGrandchildrenEndWithTheProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, _ := supervise(t, shell(t, "a", "sleep 60 & echo $! >"+dir+"/pid; exec sleep 60"))
	eventually(t, s, "a", "ready", ready)
	var child int
	until(t, "the child's PID", func() bool {
		data, _ := os.ReadFile(filepath.Join(dir, "pid"))
		child, _ = strconv.Atoi(strings.TrimSpace(string(data)))
		return child != 0
	})
	if !alive(child) {
		t.Fatalf("child %d does not run", child)
	}
	if err := s.Stop(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	until(t, "the end of the child", func() bool {
		data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(child), "stat"))
		return err != nil || strings.Contains(string(data), ") Z ")
	})
}

// A Stop right after a Start must not be answered with the earlier state.
func TestStopRightAfterStart(t *testing.T) {
	t.Parallel()
	s, _ := supervise(t, shell(t, "a", "exec sleep 60"))
	eventually(t, s, "a", "ready", ready)
	for range 30 {
		if err := s.Stop(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if err := s.Start("a"); err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if pid := s.Status()[0].PID; pid != 0 {
			t.Fatalf("stopped, and process %d runs", pid)
		}
		if err := s.Start("a"); err != nil {
			t.Fatal(err)
		}
		eventually(t, s, "a", "ready", ready)
	}
}
