package agent

import (
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

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/compat"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/pipe"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/sock"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel"
)

// incoming is a dial request of either kind of link.
type incoming interface {
	tunnel.Stream
	SetReceiver(tunnel.Receiver)
	Accept()
	Refuse(*tunnel.DialError)
}

// target is one destination. Until it is connected there is only somebody who
// may cancel.
type target struct {
	a      *Agent
	st     incoming
	end    atomic.Pointer[pipe.End]
	spoke  chan struct{}
	gone   atomic.Bool // the dialler gave up
	once   sync.Once   // closes spoke
	mu     sync.Mutex
	cancel context.CancelFunc // nil once it was called
}

// release ends the dial's context and drops it, which is larger than the target and would
// else be there for as long as the connection is.
func (t *target) release() {
	t.mu.Lock()
	cancel := t.cancel
	t.cancel = nil
	t.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// referenceHold is for how long the first bytes of a destination that speaks
// first are held back from an upstream server, whose client would drop them if
// they came right behind the answer to the dial.
const referenceHold = 10 * time.Millisecond

// hold waits until the dialler has sent something, or for referenceHold.
func (t *target) hold() {
	if t.spoke == nil {
		return
	}
	w := time.NewTimer(referenceHold)
	defer w.Stop()
	select {
	case <-t.spoke:
	case <-w.C:
	}
}

var errDenied = errors.New("denied")

// dial answers a dial request. It does not wait.
func (a *Agent) dial(st incoming, address string) {
	ctx, cancel := context.WithTimeout(context.Background(), a.cfg.DialTimeout)
	t := &target{a: a, st: st, cancel: cancel}
	if _, ok := st.(*compat.Conn); ok {
		t.spoke = make(chan struct{})
	}
	st.SetReceiver(t)
	if err := a.beginDial(); err != nil {
		t.release()
		a.refuse(st, err)
		return
	}
	go t.run(ctx, address)
}

// beginDial counts a dial, unless it may not begin: then it says why.
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
		reason = "unknown" // as the reference agent calls it
	}
	a.m.dialFailures.With(reason).Inc()
	st.Refuse(e)
}

// run connects and then carries what the destination sends.
func (t *target) run(ctx context.Context, address string) {
	start := time.Now()
	nc, err := t.a.connect(ctx, address)
	t.a.dialing.Dec()
	if err == nil && ctx.Err() != nil {
		_ = nc.Close()
		err = ctx.Err()
	}
	t.release()
	if err != nil {
		t.a.carried.Dec()
		t.a.refuse(t.st, classify(err))
		return
	}
	t.a.m.dialSeconds.Observe(time.Since(start).Seconds())
	t.a.m.endpoints.Inc()
	since := time.Now()
	sock.ShortQueues(nc)
	end := pipe.New(sock.New(nc), t.a.cfg.Pipe)
	end.OnClosed = func(err error) {
		t.a.m.endpoints.Dec()
		t.a.carried.Dec()
		t.a.forget(end)
		wrote, read := end.Moved()
		t.a.cfg.Logf(5, "connection to %s is over after %v: %d bytes there, %d bytes back, %s", address, time.Since(since), wrote, read, reason(err))
	}
	end.Start(t.st)
	t.a.remember(end)
	t.end.Store(end)
	if t.gone.Load() {
		end.Abort("dial cancelled")
		return
	}
	t.st.Accept()
	t.hold()
	end.Run()
}

// reason says how a connection has ended.
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
		return sock.DialAddr(ctx, netip.AddrPortFrom(ip, uint16(port)))
	}
	d := net.Dialer{Control: func(_, addr string, _ syscall.RawConn) error {
		if err := a.cfg.Policy.CheckAddr(addr, grant); err != nil {
			return fmt.Errorf("%w: %w", errDenied, err)
		}
		return nil
	}}
	return d.DialContext(ctx, "tcp", address)
}

// classify tells the dialler what kind of failure it was.
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

// Dialed implements tunnel.Receiver; an agent dials for others only.
func (t *target) Dialed(tunnel.Stream, error) {}

// Data implements tunnel.Receiver.
func (t *target) Data(cs ...*buf.Chunk) {
	if t.spoke != nil {
		t.once.Do(func() { close(t.spoke) })
	}
	if e := t.end.Load(); e != nil {
		e.Data(cs...)
		return
	}
	t.st.Consumed(buf.Release(cs))
}

// End implements tunnel.Receiver.
func (t *target) End() {
	if e := t.end.Load(); e != nil {
		e.End()
		return
	}
	t.giveUp()
}

// PeerClosed is called behind End when the dialler is gone.
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

// giveUp cancels a dial that nobody waits for.
func (t *target) giveUp() {
	t.gone.Store(true)
	t.release()
	if e := t.end.Load(); e != nil { // connected in between
		e.Abort("dial cancelled")
	}
}

// Writable implements tunnel.Receiver.
func (t *target) Writable() {
	if e := t.end.Load(); e != nil {
		e.Writable()
	}
}
