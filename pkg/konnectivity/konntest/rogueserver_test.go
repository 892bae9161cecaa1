package konntest

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/certs"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestRogueServer: what a server sends an agent against the rules of the link is
// counted each time and logged once with the server; the agent's other servers do
// not notice.
func TestRogueServer(t *testing.T) {
	good := NewRig(t, server.Config{ServerCount: 2})
	crt, key := good.CA.Issue(t, "rogue server", time.Now().Add(time.Hour))
	loader, err := certs.NewLoader(certs.Files{Cert: crt, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", loader.Server(&tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{link.ALPN}}))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := NewProxy(t, good.AgentTLS)
	said := &logs{}
	a := good.LaunchAgent(agent.Config{Logf: said.logf}, p.Addr)
	Eventually(t, Patience, "the good server is connected", a.Ready)
	healthy := MustDial(t, GRPC(good.GRPC), Target(t, Echo))
	p.To(l.Addr().String())
	rogue := accept(t, l)

	stay := make(chan struct{})
	defer close(stay)
	_, _ = rogue.Write(frame(fDial, 1, Target(t, func(net.Conn) { <-stay })))
	next(t, rogue, fDialed)
	for range 3 {
		_, _ = rogue.Write(frame(fFin, 1, ""))
	}
	rule := func(name string) float64 {
		return Metric(a.Metrics.Registry, `fairlead_tunnel_agent_violations_total{rule="`+name+`"}`)
	}
	Eventually(t, Patience, "the breaches are counted", func() bool { return rule("end is sent twice") == 2 })
	if lines := said.logged("end is sent twice"); len(lines) != 1 || len(said.logged(`"rogue server" at `+p.Addr)) != 1 {
		t.Errorf("logged %q, want one line with the server", lines)
	}
	_, _ = rogue.Write(frame(fData, 99, "x"))
	Eventually(t, Patience, "the end of the link is counted", func() bool { return rule("protocol") == 1 })
	_, _ = healthy.Write([]byte{7})
	if _, err := readFull(healthy, make([]byte, 1), Patience); err != nil {
		t.Errorf("a connection through another server: %v", err)
	}
}

// accept accepts an agent as the server "rogue server".
func accept(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(Patience))
	if _, err := link.ReadHello(nc); err != nil {
		t.Fatal(err)
	}
	if err := link.SendWelcome(nc, link.Welcome{ServerID: "rogue server", ServerCount: 2, Window: 1 << 18, Links: 1}); err != nil {
		t.Fatal(err)
	}
	return nc
}
