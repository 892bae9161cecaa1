// SPDX-License-Identifier: Apache-2.0

// Package sinktest has a receiver for tests of what carries streams. Start at Sink.
package sinktest

import (
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
)

// patience is how long is waited for what has to happen: long, so that a busy machine
// fails no test.
const patience = time.Minute

// Sink is a receiver that remembers everything. Unless slow, it consumes at once.
type Sink struct {
	// Answered is closed when the dial is answered.
	Answered chan struct{}

	mu      sync.Mutex
	st      tunnel.Stream
	slow    bool
	got     []byte
	calls   int // of Data
	unread  int
	ended   bool
	closed  bool
	aborted error
	dialErr error
	wake    chan struct{}
}

var _ tunnel.Receiver = (*Sink)(nil)

// NewSink returns a sink for a stream, which is nil for one that dials.
func NewSink(st tunnel.Stream, slow bool) *Sink {
	return &Sink{Answered: make(chan struct{}), st: st, slow: slow, wake: make(chan struct{}, 1)}
}

// Dialed implements tunnel.Receiver.
func (s *Sink) Dialed(st tunnel.Stream, err error) {
	s.mu.Lock()
	s.st, s.dialErr = st, err
	s.mu.Unlock()
	close(s.Answered)
}

// Data implements tunnel.Receiver.
func (s *Sink) Data(cs ...*buffer.Chunk) {
	s.mu.Lock()
	s.calls++
	n := 0
	for _, c := range cs {
		s.got = append(s.got, c.Bytes()...)
		n += c.Len()
		c.Release()
	}
	slow, st := s.slow, s.st
	if slow {
		s.unread += n
	}
	s.mu.Unlock()
	if !slow {
		st.Consumed(n)
	}
}

// End implements tunnel.Receiver.
func (s *Sink) End() { s.mu.Lock(); s.ended = true; s.mu.Unlock() }

// PeerClosed is called behind End when the other side reads nothing any more.
func (s *Sink) PeerClosed() { s.mu.Lock(); s.closed = true; s.mu.Unlock() }

// Aborted implements tunnel.Receiver.
func (s *Sink) Aborted(err error) { s.mu.Lock(); s.aborted = err; s.mu.Unlock(); s.Writable() }

// Writable implements tunnel.Receiver.
func (s *Sink) Writable() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// State is what has come: the number of bytes, the end, that the other side reads
// nothing any more, and why the stream was aborted.
func (s *Sink) State() (got int, ended, closed bool, aborted error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got), s.ended, s.closed, s.aborted
}

// Got is the bytes that have come.
func (s *Sink) Got() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

// Calls is how often Data was called.
func (s *Sink) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Stream is the sink's stream, nil before it is known.
func (s *Sink) Stream() tunnel.Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st
}

// DialErr is why the dial failed.
func (s *Sink) DialErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dialErr
}

// SetSlow says whether what comes waits for Consume.
func (s *Sink) SetSlow(slow bool) { s.mu.Lock(); s.slow = slow; s.mu.Unlock() }

// Slow reports whether what comes waits for Consume.
func (s *Sink) Slow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slow
}

// Consume passes on what a slow sink holds.
func (s *Sink) Consume() {
	s.mu.Lock()
	n := s.unread
	s.unread = 0
	s.mu.Unlock()
	s.st.Consumed(n)
}

// SendAll sends as the window allows, and tells whether it opened in time.
func (s *Sink) SendAll(p []byte) bool {
	for len(p) > 0 {
		w := s.Stream().Window()
		if w == 0 {
			select {
			case <-s.wake:
				continue
			case <-time.After(patience):
				return false
			}
		}
		c := buffer.From(p[:min(len(p), w, buffer.MaxPayload)])
		p = p[c.Len():]
		s.Stream().Send(c, true)
	}
	return true
}

// Failer is a test, also one of package rapid.
type Failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Eventually waits until f is true.
func Eventually(t Failer, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}
