// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// rogueStream is a stream of upstream's protocol, of a client or an agent, that
// follows no rules.
type rogueStream struct {
	*h2.Stream
	packets chan wire.Packet
	closed  chan error
	local   string // the address of this end
	dec     wire.StreamDecoder
	read    atomic.Int64 // bytes on the stream
	data    atomic.Int64 // those of DATA packets
}

func (*rogueStream) Headers([]h2.Field)    {}
func (s *rogueStream) Data(p []byte) error { s.read.Add(int64(len(p))); return s.dec.Feed(p, s) }
func (*rogueStream) End()                  {}
func (s *rogueStream) Closed(err error)    { s.closed <- err }
func (s *rogueStream) HandleData(_ int64, p []byte) error {
	s.data.Add(int64(len(p)))
	return nil
}
func (s *rogueStream) HandlePacket(p *wire.Packet) error { s.packets <- *p; return nil }

// next returns the next packet of a type.
func (s *rogueStream) next(t *testing.T, typ wire.Type) wire.Packet {
	t.Helper()
	for over := time.After(Patience); ; {
		select {
		case p := <-s.packets:
			if p.Type == typ {
				return p
			}
		case <-over:
			t.Fatalf("no %s came", typ)
		}
	}
}

// send sends a packet.
func (s *rogueStream) send(p wire.Packet) { s.SendControl(wire.AppendMessage(nil, &p)) }

// openRogue calls a gRPC method over a connection, which ends with the test or by the
// function that is returned.
func openRogue(t *testing.T, nc net.Conn, method string, more ...h2.Field) (*rogueStream, func()) {
	t.Helper()
	return openRogueWith(t, nc, h2.Config{}, method, more...)
}

func openRogueWith(t *testing.T, nc net.Conn, cfg h2.Config, method string, more ...h2.Field) (*rogueStream, func()) {
	t.Helper()
	conn := h2.NewClient(nc, cfg)
	s := rogueOver(conn, method, more...)
	s.local = nc.LocalAddr().String()
	served := make(chan struct{})
	go func() { defer close(served); _ = conn.Serve() }()
	end := func() { conn.Close(); <-served }
	t.Cleanup(end)
	return s, end
}

// rogueOver calls a method over a connection that may have other streams.
func rogueOver(conn *h2.Conn, method string, more ...h2.Field) *rogueStream {
	s := &rogueStream{packets: make(chan wire.Packet, 100), closed: make(chan error, 1)}
	s.Stream = conn.Open(append([]h2.Field{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method},
		{Name: ":authority", Value: "x"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}}, more...), s)
	return s
}

// wantOneLine fails the test unless one line names the peer.
func (l *logs) wantOneLine(t *testing.T, peer net.Addr) {
	t.Helper()
	l.wantOneOf(t, peer.String())
}

// wantOneOf waits for a line that holds all of the texts, and fails the test unless it
// is the only one that holds the first. What is counted may be logged a moment later.
func (l *logs) wantOneOf(t *testing.T, first string, more ...string) {
	t.Helper()
	Eventually(t, Patience, "a line with "+first+" is logged", func() bool { return len(l.logged(first)) > 0 })
	lines := l.logged(first)
	for _, text := range more {
		if !strings.Contains(lines[0], text) {
			t.Errorf("logged %q, want it to hold %q", lines[0], text)
		}
	}
	if len(lines) != 1 {
		t.Errorf("logged %q, want one line with %q", lines, first)
	}
}

// logs remembers what is logged for everybody to see.
type logs struct {
	mu    sync.Mutex
	lines []string
	all   bool // also what only higher verbosities show
}

func (l *logs) logger() logr.Logger {
	return logtest.New(func(level int, line string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if level <= 1 || l.all {
			l.lines = append(l.lines, line)
		}
	})
}

// logged returns the lines that hold a text.
func (l *logs) logged(text string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}
