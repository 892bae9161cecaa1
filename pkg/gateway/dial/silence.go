// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

const (
	// maxProbes is how many probes of an upstream wait for an answer at a time. A node handles the frames of streams in
	// five queues, of which a slow destination may block one.
	maxProbes = 5
	// blockedAfter is how long a write takes where the other side reads no more.
	blockedAfter = time.Second
)

// heardConn notes when a connection was last heard of, and since when a write waits.
type heardConn struct {
	net.Conn
	began          time.Time
	heard, writing atomic.Int64 // as of now; writing is 0 if no write waits
}

// now is the time since the connection began. It does not pass while the machine sleeps.
func (c *heardConn) now() int64 { return int64(time.Since(c.began)) + 1 }

// Read reads.
func (c *heardConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(c.now())
	}
	return n, err
}

// Write writes.
func (c *heardConn) Write(p []byte) (int, error) {
	c.writing.Store(c.now())
	defer c.writing.Store(0)
	return c.Conn.Write(p)
}

// blocked reports whether the other side reads no more.
func (c *heardConn) blocked() bool {
	since := c.writing.Load()
	return since != 0 && c.now()-since > int64(blockedAfter)
}

// ping asks the node for an answer now and then, which also keeps load balancers from closing quiet connections. TCP
// does not notice a path that has died, after a sleep of the machine or in another network: it waits a quarter of an
// hour for the other side to acknowledge.
func (u *upstream) ping() {
	tick := time.NewTicker(u.o.PingPeriod)
	defer tick.Stop()
	for {
		select {
		case <-u.down:
			return
		case <-tick.C:
			u.pinged.Store(u.raw.now())
			_, _ = u.spdy.Ping() // until the answer or the end
			u.pinged.Store(0)
		}
	}
}

// checkPath closes an upstream whose node leaves a ping without an answer, and sends nothing else either, for two periods. A
// ping alone does not tell that: it may wait in the node behind bytes for a destination that does not read.
func (u *upstream) checkPath() {
	switch silence := u.silence(); {
	case silence >= 2*u.o.PingPeriod:
		u.dead.Store(true)
		u.close()
	case silence >= u.o.PingPeriod:
		u.probe()
	}
}

// silence is how long the node owes an answer and has sent nothing. Time in which nothing could be heard or asked
// does not count.
func (u *upstream) silence() time.Duration {
	pinged := u.pinged.Load()
	if pinged == 0 {
		return 0
	}
	if u.heldUp() {
		u.held.Store(u.raw.now())
		return 0
	}
	return time.Duration(u.raw.now() - max(pinged, u.raw.heard.Load(), u.held.Load()))
}

// heldUp reports whether a client with a full buffer holds up what the node sends, or the node reads no more.
func (u *upstream) heldUp() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, since := range u.streams {
		if !since.IsZero() {
			return true
		}
	}
	return u.raw.blocked()
}

// probe makes a stream without headers, which nodes refuse at once.
func (u *upstream) probe() {
	if u.probes.Add(1) > maxProbes {
		u.probes.Add(-1)
		return
	}
	u.goroutines.Go(func() {
		defer u.probes.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), u.o.PingPeriod)
		defer cancel()
		if s, err := u.stream(ctx, http.Header{}); err == nil {
			_ = s.Reset()
		}
	})
}

// patience is how long a dial waits for the reply to a stream before it tries another upstream: 3 s by default.
func (u *upstream) patience() time.Duration { return u.o.PingPeriod * 3 / 10 }

// unanswered reports whether the node has sent nothing since a stream was asked for, though it had answered to others before.
func (u *upstream) unanswered(began int64) bool {
	return u.answers.Load() && u.raw.now()-began > int64(u.patience()) && u.raw.heard.Load() < began && !u.heldUp()
}

// doubt keeps new streams away until the node is heard of again, and ends the upstream if it has none.
func (u *upstream) doubt() {
	u.doubted.Store(u.raw.now())
	u.rest()
}

func (u *upstream) doubtful() bool { return u.doubted.Load() > u.raw.heard.Load() }

// doubt doubts the upstreams of a Pod that have been silent since one was, so that the next dial does not try them
// one after another.
func (p *portForward) doubt(pod types.NamespacedName, silent *upstream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pc := p.pods[pod]
	if pc == nil {
		return
	}
	asked := silent.raw.began.Add(time.Duration(silent.doubted.Load()) - silent.patience())
	for _, u := range pc.conns {
		if u != silent && u.raw.began.Add(time.Duration(u.raw.heard.Load())).Before(asked) {
			u.doubt()
		}
	}
}

func (u *upstream) silentError() error {
	return gateway.Errorf(gateway.ReasonPathDown, "check this machine's network and that the API server answers, then connect again",
		"the port-forward to Pod %s answers no more", u.pod)
}
