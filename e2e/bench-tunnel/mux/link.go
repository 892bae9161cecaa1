package main

import (
	"errors"
	"io"
	"net"
	"sync"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel"
)

// linkStream makes a stream of our link readable and writable like a
// connection, which costs it a copy and a wake-up that the tunnel does not pay.
type linkStream struct {
	mu       sync.Mutex
	cond     *sync.Cond
	st       tunnel.Stream
	queue    []*buf.Chunk
	err      error
	answered bool
}

func newLinkStream() *linkStream {
	s := &linkStream{}
	s.cond = sync.NewCond(&s.mu)
	return s
}

func (s *linkStream) set(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	s.cond.Broadcast()
}

// Dialed implements tunnel.Receiver, and so do the methods below.
func (s *linkStream) Dialed(st tunnel.Stream, err error) {
	s.set(func() {
		s.answered = true
		if s.err = err; err == nil {
			s.st = st
		}
	})
}

func (s *linkStream) Data(cs ...*buf.Chunk) { s.set(func() { s.queue = append(s.queue, cs...) }) }
func (s *linkStream) End()                  { s.set(func() { s.err = io.EOF }) }
func (s *linkStream) Aborted(err error)     { s.set(func() { s.err, s.answered = err, true }) }
func (s *linkStream) Writable()             { s.set(func() {}) }

func (s *linkStream) Read(p []byte) (int, error) {
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

func (s *linkStream) Write(p []byte) (int, error) {
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
		n := min(w, len(left), buf.MaxPayload)
		s.st.Send(buf.From(left[:n]), true)
		left = left[n:]
	}
	return len(p), nil
}

func (s *linkStream) Close() error {
	s.set(func() {
		for _, c := range s.queue {
			c.Release()
		}
		s.queue, s.err = nil, io.ErrClosedPipe
	})
	s.st.Reset("closed", false)
	return nil
}

func startLink(accept func(stream)) (func() (stream, error), func(), error) {
	near, far, err := tlsPair(func(nc net.Conn) net.Conn { return link.NewBatchConn(nc, nil) })
	if err != nil {
		return nil, nil, err
	}
	cfg := link.Config{Window: streamWindow, MaxWindow: streamWindow}
	server := link.New(near, streamWindow, cfg)
	cfg.OnDial = func(st *link.Stream, _ string) {
		s := newLinkStream()
		s.st = st
		st.SetReceiver(s)
		go func() {
			st.Accept()
			accept(s)
		}()
	}
	agent := link.New(far, streamWindow, cfg)
	go func() { _ = server.Run() }()
	go func() { _ = agent.Run() }()
	open := func() (stream, error) {
		s := newLinkStream()
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
	return open, func() { server.Close(); agent.Close() }, nil
}
