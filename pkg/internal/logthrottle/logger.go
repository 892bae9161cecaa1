// SPDX-License-Identifier: Apache-2.0

// Package logthrottle logs attempts that fail because of what a peer is or sends: the
// first one with the peer and the reason, and then, from time to time, how many more
// there were. A misconfigured peer retries for ever, and a malicious one as often as it
// can. Each attempt is counted elsewhere, in a metric.
package logthrottle

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

const (
	// maxKinds bounds the kinds of refusals that are remembered, and maxOfPeer those of
	// one peer. What is beyond that shares one place, of the peer or of all.
	maxKinds, maxOfPeer = 1000, 32
	// maxText is up to where events are compared, in bytes.
	maxText = 200
	// maxPrinted is how much of a text is logged, in bytes: peers choose it.
	maxPrinted = 512
	// sweepEvery is the least time between two searches for what can be forgotten.
	sweepEvery = 10 * time.Second
)

// kind is what is logged once: a peer with a text in which numbers do not count.
type kind struct{ peer, text string }

// entry is what is known of a kind.
type entry struct {
	logged time.Time
	more   int // since then
}

// Event is what is logged: structured, as Kubernetes logs.
type Event struct {
	// Level is the verbosity. Events of level 0 are problems of this program: they are logged as errors.
	Level int
	// Peer is who caused it, a name or an address whose port is ignored. It is not logged.
	Peer string
	// Message says what happened, without what differs from case to case.
	Message string
	// Who has keys and values that name the peer. Events that differ only in these are the same.
	Who []any
	// Why has keys and values that say more.
	Why []any
	// Err is why it happened; nil logs none.
	Err error
}

// Log is the throttled log of one process. Its methods may be called from any
// goroutine.
type Log struct {
	logger logr.Logger
	again  time.Duration
	now    func() time.Time

	mu    sync.Mutex
	kinds map[kind]*entry
	peers map[string]int // how many kinds each peer has
	swept time.Time
}

// New returns a log that writes to logger, the same only after the time again. If that is
// 0, it is 5 minutes.
func New(logger logr.Logger, again time.Duration) *Log {
	if again == 0 {
		again = 5 * time.Minute
	}
	return &Log{logger: logger, again: again, now: time.Now, kinds: map[kind]*entry{}, peers: map[string]int{}}
}

// Add logs an event, unless it did so for the same peer and reason a short time ago. Then the next
// line has the number of events since the last one as "repeated".
func (l *Log) Add(e Event) {
	more, ok := l.Admit(e)
	if !ok {
		return
	}
	pairs := append(clipped(e.Who), clipped(e.Why)...)
	if more > 0 {
		pairs = append(pairs, "repeated", more)
	}
	l.write(e, pairs)
}

// Admit is Add for events that the caller writes, to another log: it tells whether to write this one, and how many
// like it were not written before.
func (l *Log) Admit(e Event) (repeated int, ok bool) {
	now := l.now()
	text := fmt.Sprint(append([]any{e.Message}, clipped(e.Why)...)...)
	if e.Err != nil {
		text += Clip(e.Err.Error())
	}
	l.mu.Lock()
	forgotten := l.sweep(now)
	known := l.find(host(e.Peer), plain(text))
	repeated = known.more
	ok = now.Sub(known.logged) >= l.again
	if ok {
		*known = entry{logged: now}
	} else {
		known.more++
	}
	l.mu.Unlock()
	if forgotten > 0 {
		l.logger.V(e.Level).Info("Did not log more events of known peers", "events", forgotten)
	}
	return repeated, ok
}

func (l *Log) write(e Event, pairs []any) {
	err := e.Err
	if err != nil && len(err.Error()) > maxPrinted {
		err = clippedError{err}
	}
	switch {
	case e.Level == 0:
		l.logger.Error(err, e.Message, pairs...)
	case err != nil:
		l.logger.V(e.Level).Info(e.Message, append(pairs, "err", err)...)
	default:
		l.logger.V(e.Level).Info(e.Message, pairs...)
	}
}

// clippedError is an error whose text is too long for the log.
type clippedError struct{ error }

// Error returns the beginning of the text.
func (e clippedError) Error() string { return Clip(e.error.Error()) }

// clipped returns keys and values whose texts are as short as the log has them.
func clipped(pairs []any) []any {
	out := make([]any, 0, len(pairs)+4)
	for _, v := range pairs {
		if text, ok := v.(string); ok {
			v = Clip(text)
		}
		out = append(out, v)
	}
	return out
}

// Forget makes the next refusal of the peer appear in the log, because the peer was
// accepted in between.
func (l *Log) Forget(peer string) {
	peer = host(peer)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peers[peer] == 0 {
		return
	}
	for k := range l.kinds {
		if k.peer == peer {
			delete(l.kinds, k)
		}
	}
	delete(l.peers, peer)
}

// find returns the entry of a kind; mu is held.
func (l *Log) find(peer, text string) *entry {
	k := kind{peer, text}
	if e := l.kinds[k]; e != nil {
		return e
	}
	switch {
	case len(l.kinds) >= maxKinds:
		k = kind{}
	case l.peers[peer] >= maxOfPeer:
		k.text = ""
	}
	e := l.kinds[k]
	if e == nil {
		e = &entry{}
		l.kinds[k] = e
		l.peers[k.peer]++
	}
	return e
}

// sweep makes room if there is none, and returns how many refusals were not logged of
// what is forgotten; mu is held.
func (l *Log) sweep(now time.Time) (unsaid int) {
	if len(l.kinds) < maxKinds || now.Sub(l.swept) < sweepEvery {
		return 0
	}
	l.swept = now
	for k, e := range l.kinds {
		if now.Sub(e.logged) < l.again {
			continue
		}
		unsaid += e.more
		delete(l.kinds, k)
		if l.peers[k.peer]--; l.peers[k.peer] == 0 {
			delete(l.peers, k.peer)
		}
	}
	return unsaid
}

// host is an address without its port, which is another for each attempt.
func host(peer string) string {
	if h, _, err := net.SplitHostPort(peer); err == nil {
		return h
	}
	return peer[:min(len(peer), maxText)]
}

// plain is a text with one digit for each number: ports and the like differ.
func plain(text string) string {
	out := make([]byte, 0, min(len(text), maxText))
	for _, c := range []byte(text[:min(len(text), maxText)]) {
		if c < '0' || c > '9' {
			out = append(out, c)
		} else if n := len(out); n == 0 || out[n-1] != '0' {
			out = append(out, '0')
		}
	}
	return string(out)
}

// Clip returns the beginning of a text that a peer chose, as much as may be logged.
func Clip(text string) string {
	if len(text) <= maxPrinted {
		return text
	}
	const more = "..."
	return strings.ToValidUTF8(text[:maxPrinted-len(more)], "") + more
}
