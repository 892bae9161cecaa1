// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestHandshakesTakeTurns checks that, when many agents or clients connect at once, only a
// limited number of handshakes compute at a time, and all complete.
func TestHandshakesTakeTurns(t *testing.T) {
	for name, serve := range map[string]func(*server.Server, net.Listener, *tls.Config) error{
		"agents":       (*server.Server).ServeAgents,
		"grpc":         (*server.Server).ServeGRPC,
		"http-connect": (*server.Server).ServeHTTPConnect,
	} {
		t.Run(name, func(t *testing.T) { handshakesTakeTurns(t, serve) })
	}
}

func handshakesTakeTurns(t *testing.T, serve func(*server.Server, net.Listener, *tls.Config) error) {
	t.Helper()
	r := tunneltest.NewRig(t, server.Config{})
	crt, key := r.CA.Issue(t, "turns", time.Now().Add(time.Hour))
	pair, err := tls.LoadX509KeyPair(crt, key)
	if err != nil {
		t.Fatal(err)
	}
	var now, most atomic.Int32
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = serve(r.Server, l, &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			<-hold // as if it took long to compute
			return &pair, nil
		}})
	}()
	wait := dialMany(t, r, l.Addr().String(), 4*runtime.GOMAXPROCS(0))
	tunneltest.Eventually(t, tunneltest.Patience, "all turns are taken", func() bool { return int(now.Load()) >= runtime.GOMAXPROCS(0) })
	time.Sleep(50 * time.Millisecond) // time for further handshakes to start, if the limit did not hold
	release()
	wait()
	if n := int(most.Load()); n > runtime.GOMAXPROCS(0) {
		t.Errorf("%d handshakes computed at a time, want at most %d", n, runtime.GOMAXPROCS(0))
	}
}

// dialMany starts n clients that make a TLS handshake with an address. The returned
// function waits for all of them.
func dialMany(t *testing.T, r *tunneltest.Rig, address string, n int) (wait func()) {
	t.Helper()
	cfg, err := r.AgentTLSConfig()()
	if err != nil {
		t.Fatal(err)
	}
	cfg.ServerName = "127.0.0.1"
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			c, err := tls.Dial("tcp", address, cfg)
			if err != nil {
				t.Error(err)
				return
			}
			_ = c.Close()
		})
	}
	return wg.Wait
}

// silentBehind sends what it is given and blocks at the first read.
type silentBehind struct {
	net.Conn
	silent *sync.WaitGroup
	over   chan struct{}
}

func (s silentBehind) Read([]byte) (int, error) {
	s.silent.Done()
	<-s.over
	return 0, net.ErrClosed
}

// TestStalledHandshakes checks that peers that stop answering in the middle of a handshake
// do not delay other agents.
func TestStalledHandshakes(t *testing.T) {
	r := tunneltest.NewRig(t, server.Config{HandshakeTimeout: time.Hour})
	cfg, err := r.AgentTLSConfig()()
	if err != nil {
		t.Fatal(err)
	}
	cfg.ServerName = "127.0.0.1"
	over := make(chan struct{})
	var wg, silent sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		nc, err := net.Dial("tcp", r.AgentTLS)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		silent.Add(1)
		wg.Go(func() { _ = tls.Client(silentBehind{nc, &silent, over}, cfg).HandshakeContext(t.Context()) })
	}
	silent.Wait() // all have said hello
	r.StartAgent(agent.Config{}, "").Stop()
	close(over)
	wg.Wait()
	r.Stop()
}
