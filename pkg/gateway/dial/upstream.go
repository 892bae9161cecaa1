// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/spdystream"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// upstream is a connection to the API server for one Pod, with a pair of streams for each
// forwarded connection.
//
// SPDY as Kubernetes has it knows no flow control: a stream whose client does not read holds
// up all others of the upstream. Therefore the first connections to a Pod have an upstream each.
// Beyond those, each stream has a buffer, an upstream with a full one gets no new streams, and a
// stream that stays full for long is reset if others wait.
type upstream struct {
	o          PortForwardOptions
	pod        string
	raw        *heardConn
	spdy       *spdystream.Connection
	local      net.Addr
	requests   atomic.Int64
	goroutines *sync.WaitGroup
	down       chan struct{} // closed when the connection is over

	// pinged is since when a ping waits for its answer, held when the path was last held up, doubted when it
	// was last doubted: as of raw.now, 0 is never.
	pinged, held, doubted atomic.Int64
	probes                atomic.Int64
	answers               atomic.Bool // the node has replied to a stream
	dead                  atomic.Bool // the path was closed because it is silent

	mu      sync.Mutex
	pending int                      // streams being made
	streams map[*forwarded]time.Time // since when the stream's buffer is full; zero if it is not
	idle    *time.Timer
	closing bool
	retired bool // it takes no more streams, and ends with the last one
}

func newUpstream(pod string, nc net.Conn, o PortForwardOptions, goroutines *sync.WaitGroup) (*upstream, error) {
	raw := &heardConn{Conn: nc, began: time.Now()}
	conn, err := spdystream.NewConnection(raw, false)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	u := &upstream{
		o: o, pod: pod, raw: raw, spdy: conn, local: tcpAddr(raw.LocalAddr()), goroutines: goroutines,
		down: make(chan struct{}), streams: map[*forwarded]time.Time{},
	}
	u.idle = time.AfterFunc(o.IdleTimeout, func() { u.closeIfIdle() })
	goroutines.Go(func() { conn.Serve(spdystream.NoOpStreamHandler) })
	goroutines.Go(u.watch)
	goroutines.Go(u.ping)
	return u, nil
}

// watch ends all streams when the connection is over.
func (u *upstream) watch() {
	tick := time.NewTicker(min(u.o.StallTimeout, u.o.PingPeriod/10, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			u.resetStalled()
			u.checkPath()
			continue
		case <-u.spdy.CloseChan():
		}
		break
	}
	close(u.down)
	u.idle.Stop()
	_ = u.raw.Close()
	for _, f := range u.all() {
		f.fail(u.lostError())
	}
}

func (u *upstream) all() []*forwarded {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closing = true
	all := make([]*forwarded, 0, len(u.streams))
	for f := range u.streams {
		all = append(all, f)
	}
	return all
}

// stream makes a stream and waits for the node's reply. It gives up when the context or the
// connection ends, which spdystream's own wait does not see, and when the path seems dead.
func (u *upstream) stream(ctx context.Context, header http.Header) (*spdystream.Stream, error) {
	began := u.raw.now()
	s, err := u.spdy.CreateStream(header, nil, false)
	if err != nil {
		if s != nil {
			_ = s.Reset()
		}
		return nil, u.lostError()
	}
	for {
		err := s.WaitTimeout(50 * time.Millisecond)
		switch {
		case err == nil:
			u.answers.Store(true)
			return s, nil
		case !errors.Is(err, spdystream.ErrTimeout):
			_ = s.Reset()
			return nil, gateway.Errorf(gateway.ReasonHostUnreachable, "see the kubelet's log on the Pod's node", "the node of Pod %s refused a stream: %w", u.pod, err)
		case u.lost():
			_ = s.Reset()
			return nil, u.lostError()
		case ctx.Err() != nil:
			_ = s.Reset()
			return nil, context.Cause(ctx)
		case u.unanswered(began):
			u.doubt()
			_ = s.Reset()
			return nil, u.silentError()
		}
	}
}

// reserve takes a place for a stream if there is one.
func (u *upstream) reserve() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closing || u.retired || u.pending+len(u.streams) >= u.o.StreamsPerConnection || u.lost() || u.doubtful() || u.raw.blocked() {
		return false
	}
	for _, since := range u.streams {
		if !since.IsZero() {
			return false
		}
	}
	u.pending++
	u.idle.Stop()
	u.setLimits()
	return true
}

// setLimits gives streams that share the upstream large buffers, for clients that pause. A stream that is alone holds up no
// other, and may be one of many that wait for ever. The caller holds u.mu.
func (u *upstream) setLimits() {
	limit := u.o.ReceiveBuffer
	if len(u.streams)+u.pending <= 1 {
		limit = min(limit, receiveBuffer)
	}
	for f := range u.streams {
		f.in.setLimit(limit)
	}
}

// load is the number of streams.
func (u *upstream) load() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.pending + len(u.streams)
}

// add puts a connection in the place that reserve took for it.
func (u *upstream) add(f *forwarded) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pending--
	u.streams[f] = time.Time{}
	u.setLimits()
}

// unreserve gives up the place that reserve took.
func (u *upstream) unreserve() {
	u.mu.Lock()
	u.pending--
	u.setLimits()
	u.mu.Unlock()
	u.rest()
}

func (u *upstream) remove(f *forwarded) {
	u.mu.Lock()
	delete(u.streams, f)
	u.setLimits()
	u.mu.Unlock()
	u.rest()
}

// retire lets the upstream end when its streams have. A node does not stop to send when a stream is reset, because its
// library for SPDY does not tell it. It stops at the end of the connection.
func (u *upstream) retire() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.retired = true
}

// rest starts the idle timer if there are no streams. It ends an upstream that is doubtful or retired.
func (u *upstream) rest() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.streams)+u.pending > 0 || u.closing {
		return
	}
	after := u.o.IdleTimeout
	if u.doubtful() || u.retired {
		after = 0
	}
	u.idle.Reset(after)
}

// closeIfIdle closes the connection if there are no streams. It tells whether it did.
func (u *upstream) closeIfIdle() bool {
	u.mu.Lock()
	idle := len(u.streams)+u.pending == 0 && !u.closing
	u.closing = u.closing || idle
	u.mu.Unlock()
	if idle {
		_ = u.raw.Close()
	}
	return idle
}

// close ends the connection and all streams.
func (u *upstream) close() { _ = u.raw.Close() }

// stalled notes whether a stream waits for its client.
func (u *upstream) stalled(f *forwarded, yes bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.streams[f]; !ok {
		return
	}
	u.streams[f] = time.Time{}
	if yes {
		u.streams[f] = time.Now()
	}
}

// resetStalled resets streams that have held up others for too long. A stream that is alone
// may wait for as long as it likes.
func (u *upstream) resetStalled() {
	var late []*forwarded
	u.mu.Lock()
	if len(u.streams)+u.pending > 1 {
		for f, since := range u.streams {
			if !since.IsZero() && time.Since(since) > u.o.StallTimeout {
				late = append(late, f)
			}
		}
	}
	u.mu.Unlock()
	for _, f := range late {
		u.retire()
		f.fail(gateway.Errorf(gateway.ReasonBusy, "read faster, or use --via direct for slow readers",
			"connection to %s reset: its client read nothing for %v and held up other connections to Pod %s", f.to, u.o.StallTimeout, u.pod))
	}
}

func (u *upstream) lost() bool {
	select {
	case <-u.spdy.CloseChan():
		return true
	default:
		return false
	}
}

func (u *upstream) lostError() error {
	if u.dead.Load() {
		return u.silentError()
	}
	return gateway.Errorf(gateway.ReasonPathDown, "check that the API server and the Pod's node answer, then connect again",
		"the API server closed the port-forward to Pod %s", u.pod)
}

// tcpAddr returns addresses of type *net.TCPAddr, which SOCKS5 servers expect.
func tcpAddr(a net.Addr) net.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t
	}
	return &net.TCPAddr{IP: net.IPv4zero}
}
