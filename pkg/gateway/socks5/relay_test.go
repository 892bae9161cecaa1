// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/things-go/go-socks5/statute"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/dial"
)

// connectHTTP opens a connection by HTTP CONNECT, with bytes that follow the head at once.
func connectHTTP(t *testing.T, w *world, host, ahead string) *net.TCPConn {
	t.Helper()
	nc, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(nc, "CONNECT "+host+":7 HTTP/1.1\r\nHost: "+host+":7\r\n"+right()+"\r\n"+ahead); err != nil {
		t.Fatal(err)
	}
	const want = "HTTP/1.1 200 Connection established\r\n\r\n"
	if got := readFull(t, nc, make([]byte, len(want))); got != want {
		t.Fatalf("%q", got)
	}
	return nc.(*net.TCPConn)
}

// both runs a test with each protocol.
func both(t *testing.T, f func(t *testing.T, w *world, connect func(host string) *net.TCPConn)) {
	t.Helper()
	t.Run("socks5", func(t *testing.T) {
		w := newWorld(t)
		f(t, w, func(host string) *net.TCPConn { return mustConnect(t, w, host) })
	})
	t.Run("http", func(t *testing.T) {
		w := newWorld(t)
		f(t, w, func(host string) *net.TCPConn { return connectHTTP(t, w, host, "") })
	})
}

// TestEachDirectionEndsByItself: a side that has ended its own direction still gets
// everything of the other one, whichever side it is.
func TestEachDirectionEndsByItself(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world, connect func(string) *net.TCPConn) {
		w.name("count.default", serveTCP(t, countAtEnd))
		nc := connect("count.default")
		_, _ = io.WriteString(nc, "12345")
		_ = nc.CloseWrite()
		if got, err := io.ReadAll(nc); string(got) != "got 5" || err != nil {
			t.Errorf("%q, %v", got, err)
		}

		late := make(chan string, 1)
		w.name("first.default", serveTCP(t, func(nc *net.TCPConn) {
			_, _ = io.WriteString(nc, "bye")
			_ = nc.CloseWrite()
			got, _ := io.ReadAll(nc)
			late <- string(got)
		}))
		nc = connect("first.default")
		if got, err := io.ReadAll(nc); string(got) != "bye" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		_, _ = io.WriteString(nc, "after the end of the other direction")
		_ = nc.CloseWrite()
		if got := <-late; got != "after the end of the other direction" {
			t.Errorf("%q", got)
		}
		for _, r := range w.ended(t, 2) {
			if r.Result != ResultOK {
				t.Errorf("%+v", r)
			}
		}
	})
}

// TestBytesAheadOfTheReply: what follows the request in the same packet arrives whole and in
// order, and is counted once.
func TestBytesAheadOfTheReply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.name("echo.default", serveTCP(t, echo))
	ahead := strings.Repeat("0123456789abcdef", 4096) // more than the buffer of the handshake
	reply := loggedIn + reply(statute.RepSuccess)
	if got := talk(t, w.addr, greetAndLogin()+socksRequest(1, "echo.default", 7)+ahead); got != reply+ahead {
		t.Errorf("%d bytes: %.60q", len(got), got)
	}
	nc := connectHTTP(t, w, "echo.default", ahead)
	_ = nc.CloseWrite()
	if got, err := io.ReadAll(nc); string(got) != ahead || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for _, r := range w.ended(t, 2) {
		if n := int64(len(ahead)); r.BytesSent != n || r.BytesReceived != n {
			t.Errorf("%+v", r)
		}
	}
}

// TestServerThatSpeaksFirst: its bytes follow the reply, none is lost in it.
func TestServerThatSpeaksFirst(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world, connect func(string) *net.TCPConn) {
		w.name("ssh.default", serveTCP(t, func(nc *net.TCPConn) { _, _ = io.WriteString(nc, "SSH-2.0-test\r\n") }))
		if got, err := io.ReadAll(connect("ssh.default")); string(got) != "SSH-2.0-test\r\n" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// TestReset: a destination that resets the connection does not look like one that has ended,
// and the audit log tells the difference.
func TestReset(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world, connect func(string) *net.TCPConn) {
		w.name("reset.default", serveTCP(t, func(nc *net.TCPConn) {
			_, _ = io.WriteString(nc, "half an ans")
			_, _ = io.ReadFull(nc, make([]byte, 1))
			_ = nc.SetLinger(0)
		}))
		nc := connect("reset.default")
		readFull(t, nc, make([]byte, 11))
		_, _ = io.WriteString(nc, "x")
		if _, err := io.ReadAll(nc); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client sees %v", err)
		}
		if r := w.ended(t, 1)[0]; r.Result != ResultAborted || r.BytesReceived != 11 {
			t.Errorf("%+v", r)
		}
	})
}

// deaf is a destination that takes nothing, and answers when it may.
type deaf struct {
	gateway.Conn
	refused, answer, closed chan struct{}
	once                    sync.Once
	text                    io.Reader
}

func (d *deaf) Write([]byte) (int, error) {
	close(d.refused)
	return 0, syscall.EPIPE
}

func (d *deaf) Read(b []byte) (int, error) {
	select {
	case <-d.answer:
		return d.text.Read(b)
	case <-d.closed:
		return 0, net.ErrClosed
	}
}

func (d *deaf) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

// TestAnswerOfAServerThatReadsNothing: an early answer of a server that takes no more of the
// request arrives, although sending has failed before it.
func TestAnswerOfAServerThatReadsNothing(t *testing.T) {
	t.Parallel()
	const answer = 1 << 20 // fits into the proxy's buffer, not into the client's
	w := newWorld(t)
	d := &deaf{refused: make(chan struct{}), answer: make(chan struct{}), closed: make(chan struct{}), text: io.LimitReader(zeros{}, answer)}
	w.mu.Lock()
	w.dial = func(context.Context, gateway.Destination) (gateway.Conn, error) { return d, nil }
	w.mu.Unlock()
	w.name("early.default", netip.MustParseAddrPort("192.0.2.1:7"))
	nc := mustConnect(t, w, "early.default")
	if err := nc.SetReadBuffer(16 << 10); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(nc, "request")
	<-d.refused
	time.Sleep(50 * time.Millisecond) // in which the connection must not be closed
	close(d.answer)
	time.Sleep(200 * time.Millisecond) // in which the end of the answer must not be lost
	readFull(t, nc, make([]byte, answer))
	_ = nc.Close()
	if r := w.ended(t, 1)[0]; r.Result != ResultAborted || r.BytesReceived != answer {
		t.Errorf("%+v", r)
	}
}

// TestClientGoneCancelsDial: the dial ends when the client does, in both protocols.
func TestClientGoneCancelsDial(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.name("slow.default", serveTCP(t, echo))
	canceled := make(chan error, 1)
	w.mu.Lock()
	w.dial = func(ctx context.Context, _ gateway.Destination) (gateway.Conn, error) {
		<-ctx.Done()
		canceled <- context.Cause(ctx)
		return nil, ctx.Err()
	}
	w.mu.Unlock()
	for i, request := range []string{greetAndLogin() + socksRequest(1, "slow.default", 7), "CONNECT slow.default:7 HTTP/1.1\r\n" + right() + "\r\n"} {
		nc, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(nc, request)
		daemontest.Eventually(t, time.Minute, func() error { // the request has arrived
			if len(w.hosts()) <= i {
				return errors.New("the request has not arrived")
			}
			return nil
		})
		_ = nc.Close()
		if err := <-canceled; gateway.ReasonOf(err) != ReasonClientGone {
			t.Errorf("the dial ended with %v", err)
		}
		if r := w.ended(t, i+1)[i]; r.Result != string(ReasonClientGone) {
			t.Errorf("%+v", r)
		}
	}
}

// TestDialTimeout: a dial that takes too long ends with the code for that.
func TestDialTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world, cfg *Config) {
		cfg.DialTimeout = 20 * time.Millisecond
		w.dial = func(ctx context.Context, _ gateway.Destination) (gateway.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	w.name("slow.default", serveTCP(t, echo))
	nc, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_, _ = io.WriteString(nc, greetAndLogin()+socksRequest(1, "slow.default", 7))
	if got, _ := io.ReadAll(nc); string(got) != loggedIn+reply(statute.RepTTLExpired) {
		t.Errorf("%q", got)
	}
}

// TestStalledClient: a client that reads nothing holds up no other one.
func TestStalledClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.name("flood.default", serveTCP(t, func(nc *net.TCPConn) { _, _ = io.Copy(nc, zeros{}) }))
	w.name("echo.default", serveTCP(t, echo))
	stalled := mustConnect(t, w, "flood.default")
	readFull(t, stalled, make([]byte, 1<<20))
	beside := mustConnect(t, w, "echo.default")
	for range 100 {
		_, _ = io.WriteString(beside, "ping")
		if got := readFull(t, beside, make([]byte, 4)); got != "ping" {
			t.Fatalf("%q", got)
		}
	}
	_, _ = stalled.Close(), beside.Close()
	w.ended(t, 2)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// TestRelayBetweenSockets: the connection of a gateway in the cluster is copied by the kernel, in both directions, with the end of
// each. Closing it still gives back its place.
func TestRelayBetweenSockets(t *testing.T) {
	t.Parallel()
	d, err := dial.New(dial.ViaNetwork, dial.Options{MaxConnections: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // its connections are closed
	at := serveTCP(t, countAtEnd)
	to := gateway.Destination{Kind: gateway.KindPod, Host: at.Addr().String(), Port: at.Port(), Addr: at}
	conn, err := d.Dial(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	if socket, ok := socketOf(conn); !ok || socket.RemoteAddr().String() != at.String() {
		t.Errorf("the connection of --via network has the socket %v, %v", socket, ok)
	}
	_ = conn.Close()
	w := newWorld(t, func(_ *world, cfg *Config) { cfg.Dialer = d })
	w.name("counts.default", at)
	for i := range 2 { // one after the other: there is one place
		nc := connectHTTP(t, w, "counts.default", "")
		if _, err := io.Copy(nc, io.LimitReader(zeros{}, 3<<20)); err != nil {
			t.Fatal(err)
		}
		_ = nc.CloseWrite()
		if got, err := io.ReadAll(nc); err != nil || string(got) != "got 3145728" {
			t.Errorf("%q, %v", got, err)
		}
		if r := w.ended(t, i+1)[i]; r.Result != ResultOK || r.BytesSent != 3<<20 || r.BytesReceived != int64(len("got 3145728")) {
			t.Errorf("%+v", r)
		}
	}
}
