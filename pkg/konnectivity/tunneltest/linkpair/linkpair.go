// SPDX-License-Identifier: Apache-2.0

// Package linkpair opens streams of the tunnel's own link protocol that read and write like
// connections, for benchmarks that compare it with other multiplexers.
//
// Start with Start.
package linkpair

import (
	"errors"
	"io"
	"net"
	"sync"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
)

// Wrap prepares one end of a raw connection, before TLS.
func Wrap(nc net.Conn) net.Conn { return link.NewBatchConn(nc, nil) }

// Start runs a link between the two ends of a connection. Streams have a window of that
// many bytes. The far end calls accept, on a goroutine of its own, with each stream that
// open returns.
func Start(near, far net.Conn, window int, accept func(io.ReadWriteCloser)) (open func() (io.ReadWriteCloser, error), stop func()) {
	cfg := link.Config{Window: window, MaxWindow: window}
	server := link.New(near, window, cfg)
	cfg.OnDial = func(st *link.Stream, _ string) {
		s := newStream()
		s.st = st
		st.SetReceiver(s)
		go func() {
			st.Accept()
			accept(s)
		}()
	}
	agent := link.New(far, window, cfg)
	go func() { _ = server.Run() }()
	go func() { _ = agent.Run() }()
	open = func() (io.ReadWriteCloser, error) {
		s := newStream()
		if _, err := server.Dial("x", s, true); err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for !s.answered {
			s.cond.Wait()
		}
		return s, s.err
	}
	return open, func() { server.Close(); agent.Close() }
}

// stream makes a stream of our link readable and writable like a
// connection, which costs it a copy and a wake-up that the tunnel does not pay.
type stream struct {
	mu       sync.Mutex
	cond     *sync.Cond
	st       tunnel.Stream
	queue    []*buffer.Chunk
	err      error
	answered bool
}

func newStream() *stream {
	s := &stream{}
	s.cond = sync.NewCond(&s.mu)
	return s
}

func (s *stream) set(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	s.cond.Broadcast()
}

// Dialed implements tunnel.Receiver, and so do the methods below.
func (s *stream) Dialed(st tunnel.Stream, err error) {
	s.set(func() {
		s.answered = true
		if s.err = err; err == nil {
			s.st = st
		}
	})
}

func (s *stream) Data(cs ...*buffer.Chunk) { s.set(func() { s.queue = append(s.queue, cs...) }) }
func (s *stream) End()                     { s.set(func() { s.err = io.EOF }) }
func (s *stream) Aborted(err error)        { s.set(func() { s.err, s.answered = err, true }) }
func (s *stream) Writable()                { s.set(func() {}) }

func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	for len(s.queue) == 0 && s.err == nil {
		s.cond.Wait()
	}
	if len(s.queue) == 0 {
		defer s.mu.Unlock()
		return 0, s.err
	}
	c := s.queue[0]
	n := copy(p, c.Bytes())
	if c.Consume(n); c.Len() == 0 {
		c.Release()
		s.queue = s.queue[1:]
	}
	s.mu.Unlock()
	s.st.Consumed(n)
	return n, nil
}

func (s *stream) Write(p []byte) (int, error) {
	for left := p; len(left) > 0; {
		w := s.st.Window()
		s.mu.Lock()
		for w == 0 && s.err == nil {
			s.mu.Unlock()
			if w = s.st.Window(); w > 0 {
				s.mu.Lock()
				break
			}
			s.mu.Lock()
			if s.err == nil {
				s.cond.Wait()
			}
		}
		err := s.err
		s.mu.Unlock()
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		n := min(w, len(left), buffer.MaxPayload)
		s.st.Send(buffer.From(left[:n]), true)
		left = left[n:]
	}
	return len(p), nil
}

func (s *stream) Close() error {
	s.set(func() {
		for _, c := range s.queue {
			c.Release()
		}
		s.queue, s.err = nil, io.ErrClosedPipe
	})
	s.st.Reset("closed", false)
	return nil
}
