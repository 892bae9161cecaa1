// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// silencer dials connections of which a test can have those that are open pass no more bytes, without an end. New ones
// are not affected, as after a change of the network.
type silencer struct {
	mu    sync.Mutex
	conns []*silenced
}

type silenced struct {
	net.Conn
	silent atomic.Bool
}

func (s *silenced) Read(p []byte) (int, error) {
	for {
		n, err := s.Conn.Read(p)
		if !s.silent.Load() || err != nil {
			return n, err
		}
	}
}

func (s *silenced) Write(p []byte) (int, error) {
	if s.silent.Load() {
		return len(p), nil
	}
	return s.Conn.Write(p)
}

func (s *silencer) config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.conns = append(s.conns, &silenced{Conn: conn})
		return s.conns[len(s.conns)-1], nil
	}
	return config
}

func (s *silencer) silence(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) == 0 {
		t.Fatal("streams do not use the Dial of the configuration")
	}
	for _, c := range s.conns {
		c.silent.Store(true)
	}
	s.conns = nil
}

// forwardSilent: where the path dies without a reset, a dial does not wait for an upstream that was idle, however many there
// are, and connections that are open fail.
func forwardSilent(t *testing.T, c forwardTest) {
	var wire silencer
	d := c.dialer(t, Options{Config: wire.config(c.Config), Timeout: testTimeout, PortForward: PortForwardOptions{PingPeriod: time.Second, IdleTimeout: time.Hour}})
	to := podAt("web", listen(t, echo))
	var idle []gateway.Conn
	for range 8 {
		idle = append(idle, mustDial(t, d, to))
	}
	for _, conn := range idle {
		ping(t, conn, "before")
		_ = conn.Close()
	}
	daemontest.Eventually(t, time.Minute, func() error { return allFree(d) })
	wire.silence(t)
	conn := mustDial(t, d, to)
	ping(t, conn, "by the new route")

	wire.silence(t)
	_, err := conn.Read(make([]byte, 1))
	if gateway.ReasonOf(err) != gateway.ReasonPathDown || errors.Is(err, io.EOF) {
		t.Errorf("read from a silent path: %v, want reason %s", err, gateway.ReasonPathDown)
	}
	ping(t, mustDial(t, d, to), "again")
}

func allFree(d Dialer) error {
	p := d.(*dialer).path.(*portForward)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pc := range p.pods {
		for _, u := range pc.conns {
			if u.load() > 0 {
				return errors.New("an upstream connection is not free")
			}
		}
	}
	return nil
}

// forwardSlow: neither a destination that reads nothing for a while, with few or with many bytes on the way to it, nor a
// client that reads nothing, nor a quiet one passes for a path that has died.
func forwardSlow(t *testing.T, c forwardTest) {
	testutil.Full(t, "waits for 8 seconds; TestSilence shows which time counts")
	const period = time.Second
	d := c.dialer(t, Options{PortForward: PortForwardOptions{PingPeriod: period, ReceiveBuffer: 64 << 10, StallTimeout: time.Hour}})
	read := make(chan struct{})
	counts := podAt("web", listen(t, func(conn *net.TCPConn) {
		<-read
		n, _ := io.Copy(io.Discard, conn)
		_, _ = conn.Write([]byte{byte(n >> 20)})
	}))
	var uploads []gateway.Conn
	for _, mib := range []int{1, 32} {
		conn := mustDial(t, d, counts)
		uploads = append(uploads, conn)
		go func() {
			_, _ = conn.Write(make([]byte, mib<<20))
			_ = conn.CloseWrite()
		}()
	}
	stalled, quiet := mustDial(t, d, podAt("web", listen(t, pour))), mustDial(t, d, podAt("web", listen(t, echo)))
	time.Sleep(8 * period) // in which none of them is cut off
	ping(t, quiet, "still there")
	if n, err := io.CopyN(io.Discard, stalled, 8<<20); err != nil {
		t.Errorf("the client that read nothing got %d bytes, %v", n, err)
	}
	close(read)
	for i, want := range []byte{1, 32} {
		if got, err := io.ReadAll(uploads[i]); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("the destination that read nothing got %v MiB of %d, %v", got, want, err)
		}
	}
}

// TestSilence: only time in which the node owes an answer and could give it counts.
func TestSilence(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	raw := &heardConn{Conn: here, began: time.Now().Add(-time.Hour)}
	u := &upstream{raw: raw, streams: map[*forwarded]time.Time{}}
	near := func(what string, want time.Duration) {
		t.Helper()
		if got := u.silence(); got < want || got > want+10*time.Second {
			t.Errorf("%s: silent for %v, want %v", what, got, want)
		}
	}
	ago := func(d time.Duration) int64 { return raw.now() - int64(d) }
	near("no ping", 0)
	u.pinged.Store(ago(time.Minute))
	near("a ping without an answer", time.Minute)
	raw.heard.Store(ago(30 * time.Second))
	near("bytes since the ping", 30*time.Second)
	raw.writing.Store(ago(20 * time.Second))
	near("a write that waits", 0)
	raw.writing.Store(0)
	near("after the write", 0)
	u.held.Store(0)
	f := &forwarded{}
	u.streams[f] = time.Now()
	near("a client with a full buffer", 0)
	u.streams[f] = time.Time{}
	near("after that", 0)
	go func() { _, _ = there.Write([]byte("x")) }()
	_ = here.SetReadDeadline(time.Now().Add(testTimeout))
	if _, err := raw.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	u.held.Store(0)
	near("a byte just now", 0)
}
