// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSocketAPI(t *testing.T) {
	t.Parallel()
	s, _ := supervise(t, shell(t, "a", "exec sleep 60"))
	pid := eventually(t, s, "a", "ready", ready).PID
	socket := filepath.Join(t.TempDir(), "s")
	client := NewClient(socket)
	if _, err := client.Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Fatalf("status without a server: %v, want ErrNotRunning", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- Serve(ctx, listener, s, cancel) }()

	report, err := client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := report.Find("a"); !ok || got.PID != pid || got.RSSBytes == 0 {
		t.Errorf("status = %+v, want process %d with its memory", got, pid)
	}
	if report.TotalRSSBytes() <= report.RSSBytes {
		t.Errorf("total memory %d does not count the programs", report.TotalRSSBytes())
	}
	if err := client.Stop(t.Context(), "a"); err != nil || alive(pid) {
		t.Errorf("stop: %v, process alive: %v", err, alive(pid))
	}
	if err := client.Start(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := client.Stop(t.Context(), "b"); err == nil || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("stopping an unknown program: %v, want an error that names it", err)
	}
	if err := client.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
}

// A supervisor that is killed closes its socket a moment after its connections: it is not running.
func TestEndingSupervisor(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer listener.Close()
		for range 2 {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_ = c.Close() // with the request unread, which resets the connection, or before the request
		}
	}()
	if _, err := NewClient(socket).Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("status of a supervisor that ends: %v, want ErrNotRunning", err)
	}
	_ = listener.Close()
	<-done
}

// The client that requests the shutdown gets an answer, however soon the server
// ends.
func TestShutdownIsAnswered(t *testing.T) {
	t.Parallel()
	s, _ := supervise(t)
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() {
		served <- Serve(ctx, listener, s, func() {
			cancel()
			time.Sleep(100 * time.Millisecond) // the server starts to shut down before it answers
		})
	}()
	if err := NewClient(socket).Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
}

// A supervisor that is alive and does not answer must not hang its callers for
// ever.
func TestHangingSupervisor(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if _, err := NewClient(socket).Status(t.Context()); !errors.Is(err, ErrHangs) {
		t.Errorf("status = %v, want ErrHangs", err)
	}
}
