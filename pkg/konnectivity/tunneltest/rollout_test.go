// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tlsreload"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestShutdown: an idle server ends at once, one with a connection after its
// grace; an agent drains.
func TestShutdown(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{})
	a := r.StartAgent(agent.Config{}, "")
	addr := Target(t, Echo)
	c := MustDial(t, Connect(r.Connect), addr)
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	a.Drain(ctx)
	cancel()
	if d := time.Since(start); d < 500*time.Millisecond {
		t.Errorf("draining with a connection took %v, want the grace of 500 ms", d)
	}
	c.Close()
	ctx, cancel = context.WithTimeout(context.Background(), Patience)
	defer cancel()
	a.Drain(ctx)
	if ctx.Err() != nil {
		t.Error("draining without connections waited for the grace")
	}
	r.stop.Do(func() { r.Server.Shutdown(ctx) })
	if ctx.Err() != nil {
		t.Error("stopping an idle server waited for the grace")
	}
}

// TestDrainDeliversAll: an agent that drains waits for a destination that has ended its
// own direction, and reads late, to take the last bytes.
func TestDrainDeliversAll(t *testing.T) {
	t.Parallel()
	const size = 512 << 10
	r := NewRig(t, server.Config{})
	a := r.StartAgent(agent.Config{}, "")
	reads, got := make(chan int64), make(chan int64)
	addr := Target(t, func(c net.Conn) {
		_ = c.(*net.TCPConn).SetReadBuffer(64 << 10)
		_ = c.(*net.TCPConn).CloseWrite()
		for want := range reads {
			n, _ := io.CopyN(io.Discard, c, want)
			got <- n
		}
	})
	defer close(reads)
	c := MustDial(t, Connect(r.Connect), addr)
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("the destination ended, and the client reads %d bytes, %v", n, err)
	}
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	a.Drain(ctx)
	if ctx.Err() == nil {
		t.Error("drained before the destination has read anything")
	}
	cancel()
	reads <- size
	taken := <-got
	ctx, cancel = context.WithTimeout(context.Background(), Patience)
	defer cancel()
	a.Drain(ctx)
	a.Stop()
	if taken != size || ctx.Err() != nil {
		t.Errorf("the destination got %d of %d bytes; drained in time: %v", taken, size, ctx.Err() == nil)
	}
}

// TestAgentRollout replaces the agent again and again; no dial fails, and no transfer is
// cut.
func TestAgentRollout(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{AgentWait: Patience})
	addr := Target(t, Echo)
	old := r.StartAgent(agent.Config{}, "")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var dials atomic.Int64
	var moves []*Traffic
	for _, d := range []Dialer{GRPC(r.GRPC), Connect(r.Connect)} {
		moves = append(moves, StartTraffic(t, d, nil))
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				dials.Add(1)
				if err := roundTrip(d, addr); err != nil {
					t.Errorf("during the rollout: %v", err)
					return
				}
			}
		})
	}
	for range 5 {
		next := r.StartAgent(agent.Config{}, "")
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		old.Drain(ctx)
		cancel()
		old.Stop()
		old = next
	}
	close(stop)
	wg.Wait()
	t.Logf("%d dials", dials.Load())
	for _, tr := range moves {
		tr.Progress()
		tr.NoneCut()
	}
}

// TestCertificateRotation renews CA and certificates under load of new
// connections.
func TestCertificateRotation(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{})
	crt, key := r.CA.Issue(t, "rotating", time.Now().Add(time.Hour))
	loader := newLoader(t, tlsreload.Files{Cert: crt, Key: key, CA: r.CA.File}, logr.Logger{})
	cfg := func() (*tls.Config, error) {
		return loader.Client(&tls.Config{ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}), nil
	}
	a := r.StartAgent(agent.Config{TLS: cfg}, "")
	a.Stop()
	other := NewCA(t, r.CA.Dir) // replaces the CA file
	if _, err := connectOnce(r, cfg); err == nil {
		t.Error("server accepts a certificate of the old CA")
	}
	other.Issue(t, "rotating", time.Now().Add(time.Hour))
	other.Issue(t, "server", time.Now().Add(time.Hour))
	r.CA = other
	r.StartAgent(agent.Config{TLS: cfg}, "")
	other.Issue(t, "rotating", time.Now().Add(-time.Hour))
	if _, err := connectOnce(r, cfg); err == nil {
		t.Error("server accepts an expired certificate")
	}
}

// connectOnce makes a TLS connection to the agents' port and reads from it, which
// shows whether the server accepted the certificate.
func connectOnce(r *Rig, cfg func() (*tls.Config, error)) (int, error) {
	c, err := cfg()
	if err != nil {
		return 0, err
	}
	c.NextProtos = []string{link.ALPN}
	nc, err := tls.Dial("tcp", r.AgentTLS, c)
	if err != nil {
		return 0, err
	}
	defer func() { _ = nc.Close() }()
	_ = nc.SetReadDeadline(time.Now().Add(10 * time.Second)) // the server waits longer for the agent to speak
	n, err := nc.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}
