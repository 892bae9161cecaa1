// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/endpoint"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/trace"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/upstream"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// incoming is a dial request of either protocol.
type incoming interface {
	tunnel.Stream
	SetReceiver(tunnel.Receiver)
	Accept()
	Refuse(*tunnel.DialError)
}

// target is one destination. Until it is connected, all that can happen is that
// the client cancels the dial.
type target struct {
	a      *Agent
	st     incoming
	end    atomic.Pointer[endpoint.End]
	spoke  chan struct{}
	gone   atomic.Bool // the dialer gave up
	once   sync.Once   // closes spoke
	mu     sync.Mutex
	cancel context.CancelFunc // nil once it was called
}

// release cancels the dial's context and drops it. The context is larger than
// the target, and would otherwise stay in memory as long as the connection.
func (t *target) release() {
	t.mu.Lock()
	cancel := t.cancel
	t.cancel = nil
	t.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// upstreamHold is how long the agent holds back the first bytes of a
// destination that speaks first from an upstream server, whose client would
// drop them if they came immediately after the answer to the dial.
const upstreamHold = 10 * time.Millisecond

// hold waits until the client has sent something, or for upstreamHold.
func (t *target) hold() {
	if t.spoke == nil {
		return
	}
	w := time.NewTimer(upstreamHold)
	defer w.Stop()
	select {
	case <-t.spoke:
	case <-w.C:
	}
}

var errDenied = errors.New("denied")

// dial answers a dial request. It does not block.
func (a *Agent) dial(st incoming, address string, parent traceparent.Context) {
	ctx, cancel := context.WithTimeout(context.Background(), a.cfg.DialTimeout)
	span, child := a.cfg.Tracer.Start(parent, "konnectivity-agent dial", trace.Server)
	span.Set("address", address)
	t := &target{a: a, st: st, cancel: cancel}
	if _, ok := st.(*upstream.Conn); ok {
		t.spoke = make(chan struct{})
	}
	st.SetReceiver(t)
	if err := a.beginDial(); err != nil {
		t.release()
		a.refuse(st, err)
		span.End(err.Error())
		return
	}
	go t.run(ctx, address, span, child)
}

// Serve answers the dials of a server in the same process, over a connection that needs no handshake. It returns when the
// connection ends.
func (a *Agent) Serve(nc net.Conn) error {
	cfg := a.cfg.Link
	cfg.OnDial = func(st *link.Stream, payload string) {
		address, parent := link.CutTrace(payload)
		a.dial(st, address, traceparent.Parse(parent))
	}
	l := link.New(nc, cmp.Or(cfg.Window, settings.DefaultLinkWindow), cfg)
	return l.Run()
}

// beginDial counts a dial. If the dial may not begin, it returns the reason.
func (a *Agent) beginDial() *tunnel.DialError {
	if !a.dialing.IncBelow(a.cfg.MaxDials) {
		return tunnel.Errorf(tunnel.CodeLimit, "agent has %d dials pending, its limit", a.cfg.MaxDials)
	}
	if !a.carried.IncBelow(a.cfg.MaxConns) {
		a.dialing.Dec()
		return tunnel.Errorf(tunnel.CodeLimit, "agent has %d connections and dials, its limit", a.cfg.MaxConns)
	}
	return nil
}

func (a *Agent) refuse(st incoming, e *tunnel.DialError) {
	reason := e.Code.String()
	if e.Code == tunnel.CodeOther {
		reason = "unknown" // upstream's agent calls it so
	}
	a.m.dialFailures.With(reason).Inc()
	st.Refuse(e)
}

// run connects to the destination and then carries what the destination sends.
func (t *target) run(ctx context.Context, address string, span *trace.Span, child traceparent.Context) {
	start := time.Now()
	connecting, _ := t.a.cfg.Tracer.Start(child, "connect", trace.Client)
	nc, err := t.a.connect(ctx, address)
	t.a.dialing.Dec()
	if err == nil && ctx.Err() != nil {
		_ = nc.Close()
		err = ctx.Err()
	}
	t.release()
	if err != nil {
		t.a.carried.Dec()
		connecting.End(err.Error())
		span.End(err.Error())
		t.a.refuse(t.st, classify(err))
		return
	}
	connecting.Set("peer", nc.RemoteAddr().String())
	connecting.End("")
	t.a.m.dialSeconds.Observe(time.Since(start).Seconds())
	t.a.m.endpoints.Inc()
	since := time.Now()
	netx.ShortQueues(nc)
	end := endpoint.New(netx.New(nc), t.a.cfg.Pipe)
	end.OnClosed = func(err error) {
		t.a.m.endpoints.Dec()
		t.a.carried.Dec()
		t.a.forget(end)
		wrote, read := end.Moved()
		t.a.cfg.Logger.V(5).Info("Connection closed", "destination", address, "duration", time.Since(since), "bytesSent", wrote, "bytesReceived", read, "end", reason(err))
	}
	end.Start(t.st)
	t.a.remember(end)
	t.end.Store(end)
	if t.gone.Load() {
		end.Abort("dial canceled")
		span.End("dial canceled")
		return
	}
	span.End("")
	t.st.Accept()
	t.hold()
	end.Run()
}

// reason describes how a connection has ended.
func reason(err error) string {
	if err == nil {
		return "orderly"
	}
	return err.Error()
}

// connect dials the destination if the policy allows it.
func (a *Agent) connect(ctx context.Context, address string) (net.Conn, error) {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(portText)
	if err != nil || port < 1 || port > 65535 {
		return nil, &net.AddrError{Err: "invalid port", Addr: address}
	}
	grant, err := a.cfg.Policy.CheckName(host, port)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDenied, err)
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() == "" {
		if err := a.cfg.Policy.CheckAddr(address, grant); err != nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%w: %w", errDenied, err)}
		}
		return netx.DialAddr(ctx, netip.AddrPortFrom(ip, uint16(port)))
	}
	d := net.Dialer{Resolver: a.cfg.resolver, Control: func(_, addr string, _ syscall.RawConn) error {
		if err := a.cfg.Policy.CheckAddr(addr, grant); err != nil {
			return fmt.Errorf("%w: %w", errDenied, err)
		}
		return nil
	}}
	return d.DialContext(ctx, "tcp", address)
}

// classify converts an error of connecting to a DialError with the code of its
// kind.
func classify(err error) *tunnel.DialError {
	code := tunnel.CodeOther
	var dns *net.DNSError
	var ne net.Error
	switch {
	case errors.Is(err, errDenied):
		code = tunnel.CodeDenied
	case errors.Is(err, syscall.ECONNREFUSED):
		code = tunnel.CodeRefused
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.EADDRNOTAVAIL):
		code = tunnel.CodeLimit
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.ENETDOWN):
		code = tunnel.CodeNoRoute
	case errors.As(err, &dns) && !dns.IsTimeout:
		code = tunnel.CodeDNS
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &ne) && ne.Timeout():
		code = tunnel.CodeTimeout
	}
	return &tunnel.DialError{Code: code, Message: err.Error()}
}

// Dialed implements tunnel.Receiver. It does nothing: an agent only answers
// dials.
func (t *target) Dialed(tunnel.Stream, error) {}

// Data implements tunnel.Receiver.
func (t *target) Data(cs ...*buffer.Chunk) {
	if t.spoke != nil {
		t.once.Do(func() { close(t.spoke) })
	}
	if e := t.end.Load(); e != nil {
		e.Data(cs...)
		return
	}
	t.st.Consumed(buffer.Release(cs))
}

// End implements tunnel.Receiver.
func (t *target) End() {
	if e := t.end.Load(); e != nil {
		e.End()
		return
	}
	t.giveUp()
}

// PeerClosed is called after End when the client has gone.
func (t *target) PeerClosed() {
	if e := t.end.Load(); e != nil {
		e.PeerClosed()
	}
}

// Aborted implements tunnel.Receiver.
func (t *target) Aborted(err error) {
	if e := t.end.Load(); e != nil {
		e.Aborted(err)
		return
	}
	t.giveUp()
}

// giveUp cancels a dial that the client gave up.
func (t *target) giveUp() {
	t.gone.Store(true)
	t.release()
	if e := t.end.Load(); e != nil { // connected in the meantime
		e.Abort("dial canceled")
	}
}

// Writable implements tunnel.Receiver.
func (t *target) Writable() {
	if e := t.end.Load(); e != nil {
		e.Writable()
	}
}
