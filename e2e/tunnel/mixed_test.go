// Package tunnel tests our tunnel as programs, and with upstream's on the other
// side.
package tunnel

import (
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	upagent "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app"
	upagentopts "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app/options"
	upserver "sigs.k8s.io/apiserver-network-proxy/cmd/server/app"
	upserveropts "sigs.k8s.io/apiserver-network-proxy/cmd/server/app/options"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/konntest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// freePort returns a port from below those that the kernel gives to outgoing
// connections: the many that tests make would take it before it is used.
func freePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		p := 10_000 + rand.IntN(20_000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
		if err == nil {
			l.Close()
			return p
		}
	}
	t.Fatal("no port is free")
	return 0
}

// upstreamAgent connects upstream's agent to an address.
func upstreamAgent(t *testing.T, ca *konntest.CA, address, identifiers string) {
	t.Helper()
	o := upagentopts.NewGrpcProxyAgentOptions()
	host, port, _ := net.SplitHostPort(address)
	o.ProxyServerHost = host
	o.ProxyServerPort, _ = strconv.Atoi(port)
	o.AgentCert, o.AgentKey = ca.Issue(t, "upstream-agent", time.Now().Add(time.Hour))
	o.CaCert = ca.File
	o.AgentIdentifiers = identifiers
	o.HealthServerHost, o.HealthServerPort, o.AdminServerPort = "127.0.0.1", freePort(t), freePort(t)
	o.SyncInterval, o.SyncIntervalCap = 100*time.Millisecond, 500*time.Millisecond
	stop, drain := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	a := &upagent.Agent{}
	go func() { defer close(done); _ = a.Run(o, drain, stop) }()
	t.Cleanup(func() { close(stop); <-done })
}

// upstreamServer starts upstream's server and returns its agents' address and
// the socket of the frontend.
func upstreamServer(t *testing.T, ca *konntest.CA, mode string) (agents, socket string) {
	t.Helper()
	dir := konntest.ShortDir(t)
	o := upserveropts.NewProxyRunOptions()
	o.Mode, o.UdsName, o.ServerPort = mode, filepath.Join(dir, "s"), 0
	o.ClusterCert, o.ClusterKey = ca.Issue(t, "upstream-server", time.Now().Add(time.Hour))
	o.ClusterCaCert = ca.File
	o.AgentBindAddress, o.AgentPort = "127.0.0.1", freePort(t)
	o.AdminPort, o.HealthPort, o.HealthBindAddress = freePort(t), freePort(t), "127.0.0.1"
	stop := make(chan struct{})
	go func() { _ = (&upserver.Proxy{}).Run(o, stop) }()
	t.Cleanup(func() { close(stop) })
	agents = net.JoinHostPort("127.0.0.1", strconv.Itoa(o.AgentPort))
	konntest.Eventually(t, konntest.Patience, "upstream's server listens", func() bool {
		_, err := os.Stat(o.UdsName)
		return err == nil
	})
	return agents, o.UdsName
}

// TestUpstreamAgent runs the suite with our server and upstream's agent.
func TestUpstreamAgent(t *testing.T) {
	r := konntest.NewRig(t, server.Config{})
	upstreamAgent(t, r.CA, r.AgentTLS, "")
	konntest.Eventually(t, konntest.Patience, "agent is connected", func() bool { ok, _ := r.Server.Ready(); return ok })
	t.Run("grpc", func(t *testing.T) {
		konntest.Run(t, konntest.Pair{Dial: konntest.GRPC(r.GRPC), Failure: "connection refused"})
	})
	t.Run("http-connect", func(t *testing.T) {
		konntest.Run(t, konntest.Pair{Dial: konntest.Connect(r.Connect), Failure: "502"})
	})
}

// TestUpstreamServer runs the suite with upstream's server and our agent.
func TestUpstreamServer(t *testing.T) {
	for _, mode := range []string{"grpc", "http-connect"} {
		t.Run(mode, func(t *testing.T) {
			r := konntest.NewRig(t, server.Config{}) // for its CA only
			agents, socket := upstreamServer(t, r.CA, mode)
			a := r.StartAgent(agent.Config{}, agents)
			if got := len(a.Servers()); got != 1 {
				t.Fatalf("agent is connected to %d servers", got)
			}
			p := konntest.Pair{Dial: konntest.GRPC(socket), Overtakes: true, Failure: "connection refused"}
			if mode == "http-connect" {
				p = konntest.Pair{Dial: konntest.Connect(socket), Overtakes: true, Failure: "502"}
			}
			konntest.Run(t, p)
		})
	}
}
