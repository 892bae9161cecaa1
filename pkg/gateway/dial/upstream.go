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

// pingPeriod is that of kubectl port-forward. It keeps load balancers from closing quiet
// connections.
const pingPeriod = 10 * time.Second

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
	raw        net.Conn
	spdy       *spdystream.Connection
	local      net.Addr
	requests   atomic.Int64
	goroutines *sync.WaitGroup
	down       chan struct{} // closed when the connection is over

	mu      sync.Mutex
	pending int                      // streams being made
	streams map[*forwarded]time.Time // since when the stream's buffer is full; zero if it is not
	idle    *time.Timer
	closing bool
}

func newUpstream(pod string, raw net.Conn, o PortForwardOptions, goroutines *sync.WaitGroup) (*upstream, error) {
	conn, err := spdystream.NewConnection(raw, false)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	u := &upstream{
		o: o, pod: pod, raw: raw, spdy: conn, local: tcpAddr(raw.LocalAddr()), goroutines: goroutines,
		down: make(chan struct{}), streams: map[*forwarded]time.Time{},
	}
	u.idle = time.AfterFunc(o.IdleTimeout, u.closeIfIdle)
	goroutines.Go(func() { conn.Serve(spdystream.NoOpStreamHandler) })
	goroutines.Go(u.watch)
	goroutines.Go(u.ping)
	return u, nil
}

// watch ends all streams when the connection is over.
func (u *upstream) watch() {
	tick := time.NewTicker(min(u.o.StallTimeout, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			u.resetStalled()
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

func (u *upstream) ping() {
	tick := time.NewTicker(pingPeriod)
	defer tick.Stop()
	for {
		select {
		case <-u.down:
			return
		case <-tick.C:
			_, _ = u.spdy.Ping()
		}
	}
}

// stream makes a stream and waits for the node's reply. It gives up when the context or the
// connection ends, which spdystream's own wait does not see.
func (u *upstream) stream(ctx context.Context, header http.Header) (*spdystream.Stream, error) {
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
		}
	}
}

// reserve takes a place for a stream if there is one.
func (u *upstream) reserve() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closing || u.pending+len(u.streams) >= u.o.StreamsPerConnection || u.lost() {
		return false
	}
	for _, since := range u.streams {
		if !since.IsZero() {
			return false
		}
	}
	u.pending++
	u.idle.Stop()
	return true
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
}

// unreserve gives up the place that reserve took.
func (u *upstream) unreserve() {
	u.mu.Lock()
	u.pending--
	u.mu.Unlock()
	u.rest()
}

func (u *upstream) remove(f *forwarded) {
	u.mu.Lock()
	delete(u.streams, f)
	u.mu.Unlock()
	u.rest()
}

// rest starts the idle timer if there are no streams.
func (u *upstream) rest() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.streams)+u.pending == 0 && !u.closing {
		u.idle.Reset(u.o.IdleTimeout)
	}
}

func (u *upstream) closeIfIdle() {
	u.mu.Lock()
	idle := len(u.streams)+u.pending == 0
	u.closing = u.closing || idle
	u.mu.Unlock()
	if idle {
		_ = u.raw.Close()
	}
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
