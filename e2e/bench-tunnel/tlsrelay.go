package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/sock"
)

// startTLSRelay is the relay with TLS between its two processes, a connection of its own
// for each that is carried, opened ahead. It shows what encryption by crypto/tls costs
// who neither multiplexes nor bounds anything.
func startTLSRelay(mode string) (*rig, error) {
	r, exe, err := newFloor(tlsRelayName, mode)
	if err != nil {
		return nil, err
	}
	if err := writeCerts(r.dir); err != nil {
		return nil, err
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort()))
	a, err := start("floor", r.dir+"/agent0.log", nil, exe, "tls-floor", mode, addr, r.dir)
	if err != nil {
		return nil, err
	}
	r.agents = append(r.agents, a)
	if r.server, err = start("relay", r.dir+"/server.log", nil, exe, "tls-relay", r.socket, addr, r.dir); err != nil {
		r.stop()
		return nil, err
	}
	return r, r.awaitSocket()
}

// runTLSFloor is the process "bench-tunnel tls-floor <mode> <address> <directory>".
func runTLSFloor(mode, address, dir string) error {
	cfg, err := bothEnds(dir)
	if err != nil {
		return err
	}
	serve := floorConnect
	if mode == "grpc" {
		serve = floorGRPC
	}
	return serveAll("tcp", address, func(c net.Conn) {
		s := sealed(c, cfg, tls.Server)
		if s.HandshakeContext(context.Background()) != nil { // before anybody gathers what it writes
			_ = c.Close()
			return
		}
		serve(s)
	})
}

// runTLSRelay is the process "bench-tunnel tls-relay <socket> <address> <directory>".
func runTLSRelay(socket, address, dir string) error {
	cfg, err := bothEnds(dir)
	if err != nil {
		return err
	}
	ready := make(chan *sealedConn, 16)
	go func() {
		for {
			t, err := floorDial(address)
			if err != nil {
				time.Sleep(20 * time.Millisecond) // the other process is not there yet
				continue
			}
			s := sealed(t, cfg, tls.Client)
			if err := s.HandshakeContext(context.Background()); err != nil {
				fmt.Fprintf(os.Stderr, "TLS relay: handshake with %s: %v\n", address, err)
				_ = t.Close()
				time.Sleep(time.Second)
				continue
			}
			ready <- s
		}
	}()
	return serveAll("unix", socket, func(c net.Conn) {
		defer c.Close()
		s := <-ready
		defer func() { _ = s.Close() }()
		joinSealed(s, c)
	})
}

func bothEnds(dir string) (*tls.Config, error) {
	crt, err := tls.LoadX509KeyPair(dir+"/crt", dir+"/key")
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(dir + "/ca")
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return &tls.Config{Certificates: []tls.Certificate{crt}, RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13}, nil
}

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

// sealedConn is an encrypted connection that reads and writes up to sock.MaxRead bytes
// with one system call.
type sealedConn struct {
	*tls.Conn
	below *gathered
}

func sealed(nc net.Conn, cfg *tls.Config, end func(net.Conn, *tls.Config) *tls.Conn) *sealedConn {
	sock.ShortQueues(nc)
	below := &gathered{Conn: nc, in: make([]byte, sock.MaxRead)}
	return &sealedConn{Conn: end(below, cfg), below: below}
}

// record is the length of a full record of TLS with its header and tag.
const record = 16384 + 22

// Read returns what has come, of all whole records that were read ahead.
func (s *sealedConn) Read(p []byte) (n int, err error) {
	for {
		m, err := s.Conn.Read(p[n:])
		n += m
		if err != nil || n == len(p) || len(s.below.ahead) < record {
			return n, err
		}
	}
}

func (s *sealedConn) Write(p []byte) (int, error) {
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

// joinSealed moves the bytes of both directions through buffers.
func joinSealed(s *sealedConn, c net.Conn) {
	pump := func(to, from net.Conn) { _, _ = io.CopyBuffer(plain{to}, plain{from}, make([]byte, sock.MaxRead)) }
	go func() {
		pump(s, c)
		_ = s.Close()
	}()
	pump(c, s)
}
