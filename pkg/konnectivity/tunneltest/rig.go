// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tlsreload"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest/kasdial"
)

// Dialer makes a tunneled connection.
type Dialer func(ctx context.Context, address string) (net.Conn, error)

// GRPC dials as kube-apiserver does with GRPC over UDS.
func GRPC(socket string) Dialer {
	return func(ctx context.Context, address string) (net.Conn, error) { return kasdial.GRPC(ctx, socket, address) }
}

// Connect dials as kube-apiserver does with HTTP CONNECT over UDS.
func Connect(socket string) Dialer {
	return connectOver(func(ctx context.Context) (net.Conn, error) { return kasdial.Unix(ctx, socket) })
}

// ConnectTLS dials as kube-apiserver does with HTTP CONNECT over TCP.
func ConnectTLS(proxy string, cfg *tls.Config) Dialer {
	d := tls.Dialer{Config: cfg}
	return connectOver(func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "tcp", proxy) })
}

func connectOver(dial func(context.Context) (net.Conn, error)) Dialer {
	return func(ctx context.Context, address string) (net.Conn, error) {
		c, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		tunneled, err := kasdial.Handshake(c, address)
		if !stop() && err == nil {
			return nil, ctx.Err()
		}
		return tunneled, err
	}
}

// GRPCTLS dials with GRPC over TCP, which upstream's client can.
func GRPCTLS(proxy string, cfg *tls.Config) Dialer {
	return func(ctx context.Context, address string) (net.Conn, error) {
		return kasdial.GRPCOver(ctx, proxy, address, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	}
}

// Rig is our server, reachable in both modes, and agents.
type Rig struct {
	t        testing.TB
	CA       *CA
	Server   *server.Server
	Metrics  *server.Metrics
	AgentTLS string // address of the agents' listener
	GRPC     string // socket for GRPC
	Connect  string // socket for HTTP CONNECT
	stop     sync.Once

	agentTLS *tlsreload.Loader // for agents that bring no TLS of their own
}

// ShortDir returns a directory that is removed with the test. Its path is short
// enough for sockets.
func ShortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kt") //nolint:usetesting // t.TempDir has the test's name in it: too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// NewRig starts a server.
func NewRig(t testing.TB, cfg server.Config) *Rig {
	t.Helper()
	dir := ShortDir(t)
	r := &Rig{t: t, CA: NewCA(t, dir), Metrics: server.NewMetrics(), GRPC: filepath.Join(dir, "g"), Connect: filepath.Join(dir, "c")}
	crt, key := r.CA.Issue(t, "server", time.Now().Add(time.Hour))
	loader := newLoader(t, tlsreload.Files{Cert: crt, Key: key, CA: r.CA.File}, logtest.New(func(_ int, line string) { t.Log(line) }))
	if cfg.ServerID == "" {
		cfg.ServerID = "test-server"
	}
	if cfg.HandshakeTimeout == 0 {
		cfg.HandshakeTimeout = Patience
	}
	r.Server = server.New(cfg, r.Metrics)
	g, err := server.ListenUnix(r.GRPC, true)
	if err != nil {
		t.Fatal(err)
	}
	c, err := server.ListenUnix(r.Connect, true)
	if err != nil {
		t.Fatal(err)
	}
	a, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.AgentTLS = a.Addr().String()
	go func() { _ = r.Server.ServeGRPC(g, nil) }() // they end with their listeners
	go func() { _ = r.Server.ServeHTTPConnect(c, nil) }()
	go func() { _ = r.Server.ServeAgents(a, loader.Server(&tls.Config{MinVersion: tls.VersionTLS12})) }()
	t.Cleanup(r.Stop)
	return r
}

// loader issues a certificate and follows its files.
func (r *Rig) loader(name string) *tlsreload.Loader {
	r.t.Helper()
	crt, key := r.CA.Issue(r.t, name, time.Now().Add(time.Hour))
	return newLoader(r.t, tlsreload.Files{Cert: crt, Key: key, CA: r.CA.File}, logr.Logger{})
}

// newLoader returns a loader that uses new certificates as soon as they are in the files.
func newLoader(t testing.TB, files tlsreload.Files, logger logr.Logger) *tlsreload.Loader {
	t.Helper()
	loader, err := tlsreload.NewLoader(files, logger)
	if err != nil {
		t.Fatal(err)
	}
	loader.SetInterval(0)
	return loader
}

// FrontendsTLS opens frontends on TCP with mutual TLS and returns their addresses.
func (r *Rig) FrontendsTLS() (grpcAddr, connectAddr string) {
	r.t.Helper()
	loader := r.loader("frontend")
	listen := func(serve func(net.Listener, *tls.Config) error, protos ...string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			r.t.Fatal(err)
		}
		go func() { _ = serve(l, loader.Server(&tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protos})) }()
		return l.Addr().String()
	}
	return listen(r.Server.ServeGRPC, "h2"), listen(r.Server.ServeHTTPConnect)
}

// Stop ends the server.
func (r *Rig) Stop() {
	r.stop.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r.Server.Shutdown(ctx)
	})
}

// Shutdown ends the server in an orderly way.
func (r *Rig) Shutdown(ctx context.Context) {
	r.stop.Do(func() { r.Server.Shutdown(ctx) })
}

// Agent is a running agent.
type Agent struct {
	*agent.Agent
	ID      string
	Metrics *agent.Metrics
	Stop    func()
}

// StartAgent connects an agent to the rig's server, at the address if it is not
// empty, and waits until both know of it: an agent that has been accepted may be some
// moments ahead of its server.
func (r *Rig) StartAgent(cfg agent.Config, address string) *Agent {
	r.t.Helper()
	a := r.LaunchAgent(cfg, address)
	Eventually(r.t, Patience, "agent is ready", func() bool { return a.Ready() && r.Server.Connected(a.ID) })
	return a
}

// AgentTLSConfig returns what agents use that bring no TLS of their own.
func (r *Rig) AgentTLSConfig() func() (*tls.Config, error) {
	r.t.Helper()
	if r.agentTLS == nil {
		r.agentTLS = r.loader("agent")
	}
	loader := r.agentTLS
	return func() (*tls.Config, error) {
		return loader.Client(&tls.Config{ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}), nil
	}
}

// LaunchAgent is StartAgent without the wait.
func (r *Rig) LaunchAgent(cfg agent.Config, address string) *Agent {
	r.t.Helper()
	if address == "" {
		address = r.AgentTLS
	}
	cfg.Address = address
	if cfg.TLS == nil {
		cfg.TLS = r.AgentTLSConfig()
	}
	if cfg.AgentID == "" {
		cfg.AgentID = fmt.Sprintf("agent-%d", time.Now().UnixNano())
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = Patience
	}
	if cfg.SyncInterval == 0 {
		cfg.SyncInterval = 50 * time.Millisecond
		cfg.SyncIntervalCap = 500 * time.Millisecond
	}
	m := agent.NewMetrics()
	a := agent.New(cfg, m)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { a.Run(ctx); close(done) }()
	var once sync.Once
	stop := func() { once.Do(func() { cancel(); <-done }) }
	r.t.Cleanup(stop)
	return &Agent{a, cfg.AgentID, m, stop}
}

// Patience is how long tests wait for what has to happen. It is long, so that a
// busy machine fails no test: only what never happens does.
const Patience = time.Minute

// Eventually waits until f is true.
func Eventually(t testing.TB, limit time.Duration, what string, f func() bool) {
	t.Helper()
	testutil.Eventually(t, limit, func() error {
		if f() {
			return nil
		}
		return errors.New(what)
	})
}

// Only is upstream's protocol alone, or any.
func Only(upstream bool) settings.Protocol {
	if upstream {
		return settings.ProtocolUpstream
	}
	return settings.ProtocolAny
}
