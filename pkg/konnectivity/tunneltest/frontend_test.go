// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestFrontendsTLS runs the suite over TCP with mutual TLS. It also checks that
// the server rejects clients without a certificate, with a certificate of another
// CA and with an expired certificate.
func TestFrontendsTLS(t *testing.T) {
	said := &logs{}
	r := NewRig(t, server.Config{Logger: said.logger(), LogAgain: 1})
	r.StartAgent(agent.Config{}, "")
	g, c := r.FrontendsTLS()
	cfg, err := r.AgentTLSConfig()()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("http-connect", func(t *testing.T) {
		Run(t, Pair{Dial: ConnectTLS(c, cfg), SlowClients: true, SlowTargets: true, HalfClose: true, Failure: "502"})
	})
	t.Run("grpc", func(t *testing.T) {
		Run(t, Pair{Dial: GRPCTLS(g, cfg), Failure: "connection refused"})
	})
	addr := Target(t, Echo)
	healthy := MustDial(t, ConnectTLS(c, cfg), addr)
	none := cfg.Clone()
	none.Certificates = nil
	other := cfg.Clone()
	dir := ShortDir(t)
	other.Certificates = loadPair(t, NewCA(t, dir), "stranger", time.Now().Add(time.Hour))
	expired := cfg.Clone()
	expired.Certificates = loadPair(t, r.CA, "expired", time.Now().Add(-time.Hour))
	badInput := func() float64 {
		return Metric(r.Metrics.Registry, `fairlead_tunnel_server_bad_input_total{peer="client"}`)
	}
	for name, bad := range map[string]Dialer{
		"none": ConnectTLS(c, none), "other CA": ConnectTLS(c, other), "expired": ConnectTLS(c, expired),
	} {
		before, lines := badInput(), len(said.logged(`client="127.0.0.1:`))
		if conn, err := bad(t.Context(), addr); err == nil {
			_ = conn.Close()
			t.Errorf("%s: accepted", name)
		}
		Eventually(t, Patience, name+" is counted", func() bool { return badInput() == before+1 })
		if all := said.logged(`client="127.0.0.1:`); len(all) != lines+1 {
			t.Errorf("%s: logged %q, want one line more than %d", name, all, lines)
		}
	}
	if _, err := healthy.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := readFull(healthy, make([]byte, 1), Patience); err != nil {
		t.Errorf("a client with a good certificate: %v", err)
	}
}
