// SPDX-License-Identifier: Apache-2.0

package baseline

import (
	"crypto/tls"
	"io"
	"net"
	"sync"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
)

// gathered is a connection below TLS. Many records come with one read, and go with one
// write when there is a record to go behind them.
type gathered struct {
	net.Conn
	in, ahead []byte // ahead is the part of in that was not asked for yet

	mu     sync.Mutex
	gather bool
	out    []byte
}

func (g *gathered) Read(p []byte) (int, error) {
	if len(g.ahead) == 0 {
		n, err := g.Conn.Read(g.in)
		if err != nil {
			return 0, err
		}
		g.ahead = g.in[:n]
	}
	n := copy(p, g.ahead)
	g.ahead = g.ahead[n:]
	return n, nil
}

func (g *gathered) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.gather {
		return g.Conn.Write(p)
	}
	g.out = append(g.out, p...)
	return len(p), nil
}

// Sealed is an encrypted connection that reads and writes many TLS records with one
// system call.
type Sealed struct {
	*tls.Conn
	below *gathered
}

// NewSealed encrypts a connection; end is tls.Server or tls.Client.
func NewSealed(nc net.Conn, cfg *tls.Config, end func(net.Conn, *tls.Config) *tls.Conn) *Sealed {
	netx.ShortQueues(nc)
	below := &gathered{Conn: nc, in: make([]byte, netx.MaxRead)}
	return &Sealed{Conn: end(below, cfg), below: below}
}

// record is the length of a full record of TLS with its header and tag.
const record = 16384 + 22

// Read returns what has come, of all whole records that were read ahead.
func (s *Sealed) Read(p []byte) (n int, err error) {
	for {
		m, err := s.Conn.Read(p[n:])
		n += m
		if err != nil || n == len(p) || len(s.below.ahead) < record {
			return n, err
		}
	}
}

// Write encrypts p and writes its records at once.
func (s *Sealed) Write(p []byte) (int, error) {
	s.below.begin()
	n, err := s.Conn.Write(p)
	if e := s.below.end(); err == nil {
		err = e
	}
	return n, err
}

func (g *gathered) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gather = true
}

// end writes what was gathered.
func (g *gathered) end() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gather = false
	_, err := g.Conn.Write(g.out)
	g.out = g.out[:0]
	return err
}

// plain hides all but reading and writing, so that io.CopyBuffer takes the buffer.
type plain struct{ io.ReadWriter }

// JoinSealed moves the bytes of both directions through buffers.
func JoinSealed(s *Sealed, c net.Conn) {
	pump := func(to, from net.Conn) { _, _ = io.CopyBuffer(plain{to}, plain{from}, make([]byte, netx.MaxRead)) }
	go func() {
		pump(s, c)
		_ = s.Close()
	}()
	pump(c, s)
}
