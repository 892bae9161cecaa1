package konntest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/certs"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestFrozenAgent: an agent that stops answering gets no dials, and the dials that
// it has are given to another.
func TestFrozenAgent(t *testing.T) {
	for _, reference := range []bool{false, true} {
		t.Run(fmt.Sprintf("reference=%v", reference), func(t *testing.T) {
			r := NewRig(t, server.Config{ReferenceOnly: reference})
			p := NewProxy(t, r.AgentTLS)
			r.StartAgent(agent.Config{AgentID: "frozen"}, p.Addr)
			r.StartAgent(agent.Config{AgentID: "healthy"}, "")
			addr := Target(t, Echo)
			p.Freeze(true)
			dial := Connect(r.Connect)
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), Patience)
					defer cancel()
					c, err := dial(ctx, addr)
					if err != nil {
						t.Errorf("dial right after the freeze: %v", err)
						return
					}
					c.Close()
				})
			}
			wg.Wait()
			before := redials(r)
			for range 50 {
				MustDial(t, dial, addr).Close()
			}
			if n := redials(r) - before; n > 5 { // half of them, if it were chosen
				t.Errorf("%d of 50 dials were first given to an agent that is known to be frozen", n)
			}
		})
	}
}

// redials is how many dials were given to another agent.
func redials(r *Rig) int {
	var b strings.Builder
	r.Metrics.Registry.Write(&b)
	n := 0
	for line := range strings.Lines(b.String()) {
		_, _ = fmt.Sscanf(line, "fairlead_tunnel_server_redials_total %d", &n)
	}
	return n
}

// TestReset: when the link breaks, clients see the end of their connections, a
// transfer is not taken for whole, and the agent comes back.
func TestReset(t *testing.T) {
	r := NewRig(t, server.Config{AgentWait: Patience})
	p := NewProxy(t, r.AgentTLS)
	a := r.StartAgent(agent.Config{}, p.Addr)
	addr := Target(t, Echo)
	g, h := MustDial(t, GRPC(r.GRPC), addr), MustDial(t, Connect(r.Connect), addr)
	p.Cut()
	for _, c := range []net.Conn{g, h} {
		if n, err := readFull(c, make([]byte, 1), Patience); err == nil || n > 0 {
			t.Errorf("read %d, %v from a connection whose link is gone", n, err)
		}
	}
	Eventually(t, Patience, "agent is back", func() bool { ok, _ := r.Server.Ready(); return ok && a.Ready() })
	MustDial(t, GRPC(r.GRPC), addr).Close()
	Eventually(t, Patience, "nothing is left", func() bool { return r.Server.Established() == 0 })
}

// TestPendingDialExpires is upstream's #855: a dial without an answer is forgotten.
func TestPendingDialExpires(t *testing.T) {
	r := NewRig(t, server.Config{DialTimeout: 300 * time.Millisecond})
	p := NewProxy(t, r.AgentTLS)
	r.StartAgent(agent.Config{}, p.Addr)
	p.Freeze(true)
	_, err := Connect(r.Connect)(context.Background(), "127.0.0.1:1")
	if err == nil || !strings.Contains(err.Error(), "504") {
		t.Errorf("got %v, want 504", err)
	}
	if n := r.Server.Established(); n != 0 {
		t.Errorf("%d dials are left", n)
	}
}

// TestClientGoneDuringDial: a client that goes away while its dial is pending
// leaves nothing behind.
func TestClientGoneDuringDial(t *testing.T) {
	r := NewRig(t, server.Config{})
	a := r.StartAgent(agent.Config{}, "")
	addr := Target(t, Echo)
	for range 100 {
		c, err := net.Dial("unix", r.Connect)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", addr)
		c.Close()
	}
	Eventually(t, Patience, "server has none left", func() bool { return r.Server.Established() == 0 })
	Eventually(t, Patience, "agent has none left", func() bool { return endpoints(a) == 0 })
}

func endpoints(a *Agent) int {
	var b strings.Builder
	a.Metrics.Registry.Write(&b)
	n := -1
	for _, line := range strings.Split(b.String(), "\n") {
		_, _ = fmt.Sscanf(line, "konnectivity_network_proxy_agent_open_endpoint_connections %d", &n)
	}
	return n
}

// TestShutdown: an idle server ends at once, one with a connection after its
// grace; an agent drains.
func TestShutdown(t *testing.T) {
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

// TestAgentRollout replaces the agent again and again; no dial fails.
func TestAgentRollout(t *testing.T) {
	r := NewRig(t, server.Config{AgentWait: Patience})
	addr := Target(t, Echo)
	old := r.StartAgent(agent.Config{}, "")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var dials, failed atomic.Int64
	for _, d := range []Dialer{GRPC(r.GRPC), Connect(r.Connect)} {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := d(context.Background(), addr)
				dials.Add(1)
				if err != nil {
					failed.Add(1)
					t.Errorf("dial during the rollout: %v", err)
					return
				}
				_, _ = c.Write([]byte{1})
				if _, err := readFull(c, make([]byte, 1), Patience); err != nil {
					t.Errorf("echo during the rollout: %v", err)
				}
				c.Close()
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
	t.Logf("%d dials, %d failed", dials.Load(), failed.Load())
}

// TestCertificateRotation renews CA and certificates under load of new
// connections.
func TestCertificateRotation(t *testing.T) {
	r := NewRig(t, server.Config{})
	crt, key := r.CA.Issue(t, "rotating", time.Now().Add(time.Hour))
	loader, err := certs.NewLoader(certs.Files{Cert: crt, Key: key, CA: r.CA.File}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := func() (*tls.Config, error) {
		return loader.Client(&tls.Config{ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}), nil
	}
	a := r.StartAgent(agent.Config{TLS: cfg}, "")
	a.Stop()
	other := NewCA(t, r.CA.Dir) // replaces the CA file
	time.Sleep(1100 * time.Millisecond)
	if _, err := connectOnce(r, cfg); err == nil {
		t.Error("server accepts a certificate of the old CA")
	}
	other.Issue(t, "rotating", time.Now().Add(time.Hour))
	other.Issue(t, "server", time.Now().Add(time.Hour))
	time.Sleep(1100 * time.Millisecond)
	r.CA = other
	r.StartAgent(agent.Config{TLS: cfg}, "")
	other.Issue(t, "rotating", time.Now().Add(-time.Hour))
	time.Sleep(1100 * time.Millisecond)
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

func TestListenUnix(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server.ListenUnix(file, true); !errors.Is(err, server.ErrNotSocket) {
		t.Errorf("a file in the way: %v", err)
	}
	path := filepath.Join(dir, "s")
	first, err := server.ListenUnix(path, true)
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o770 {
		t.Errorf("socket has mode %v, want srwxrwx---", info.Mode())
	}
	if _, err := server.ListenUnix(path, true); !errors.Is(err, server.ErrSocketUsed) {
		t.Errorf("a live server's socket: %v", err)
	}
	first.Close()
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	if _, err := server.ListenUnix(path, false); err == nil {
		t.Error("a stale socket is replaced without being told to")
	}
	again, err := server.ListenUnix(path, true)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// TestBadInput sends garbage to all listeners; a connection beside it notices
// nothing, and a metric counts it.
func TestBadInput(t *testing.T) {
	r := NewRig(t, server.Config{})
	r.StartAgent(agent.Config{}, "")
	addr := Target(t, Echo)
	healthy := MustDial(t, GRPC(r.GRPC), addr)
	for _, in := range []string{
		"", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT\r\n\r\n", strings.Repeat("x", 40<<10), "\x00\x01\x02\x03",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x05", // DATA-like on an idle stream
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x04\x00\x00\x00\x00\x00", // oversized frame
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x05\x01\x04\x00\x00\x00\x01\xff\xff\xff\xff\xff",
	} {
		for _, socket := range []string{r.GRPC, r.Connect} {
			c, err := net.Dial("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write([]byte(in))
			_ = c.(*net.UnixConn).CloseWrite()
			_ = c.SetReadDeadline(time.Now().Add(Patience))
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
		c, err := net.Dial("tcp", r.AgentTLS)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte(in))
		c.Close()
	}
	if _, err := healthy.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := readFull(healthy, make([]byte, 1), Patience); err != nil {
		t.Fatalf("healthy connection: %v", err)
	}
	var b strings.Builder
	r.Metrics.Registry.Write(&b)
	if !strings.Contains(b.String(), `fairlead_tunnel_server_bad_input_total{peer="client"}`) {
		t.Error("no metric counts bad input")
	}
}
