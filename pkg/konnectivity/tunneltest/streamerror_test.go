// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tlsreload"
)

// silentHandler takes what an agent sends.
type silentHandler struct{}

func (silentHandler) Headers([]h2.Field) {}
func (silentHandler) Data([]byte) error  { return nil }
func (silentHandler) End()               {}
func (silentHandler) Closed(error)       {}

// TestStreamErrors: how a server of upstream's protocol ends the agent's stream is
// counted as upstream's agent counts it.
func TestStreamErrors(t *testing.T) {
	t.Parallel()
	trailers := func(code string) func(*h2.Stream) {
		return func(st *h2.Stream) { st.Finish([]h2.Field{{Name: "grpc-status", Value: code}}) }
	}
	for name, c := range map[string]struct {
		end  func(st *h2.Stream)
		code string
	}{
		"connection lost": {func(st *h2.Stream) { st.Conn().Close() }, "Unavailable"},
		"canceled":        {func(st *h2.Stream) { st.Reset(h2.CodeCancel) }, "Canceled"},
		"too much":        {func(st *h2.Stream) { st.Reset(h2.CodeEnhanceCalm) }, "ResourceExhausted"},
		"status":          {trailers("16"), "Unauthenticated"},
		"garbage":         {func(st *h2.Stream) { st.SendControl([]byte("\x00\x00\x00\x00\x03\xff\xff\xff")) }, "Internal"},
		"orderly":         {trailers("0"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := ShortDir(t)
			ca := NewCA(t, dir)
			crt, key := ca.Issue(t, "server", time.Now().Add(time.Hour))
			loader := newLoader(t, tlsreload.Files{Cert: crt, Key: key, CA: ca.File}, logr.Logger{})
			l, err := tls.Listen("tcp", "127.0.0.1:0", loader.Server(&tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}))
			if err != nil {
				t.Fatal(err)
			}
			streams := make(chan *h2.Stream, 100)
			served := make(chan struct{})
			go func() {
				defer close(served)
				for {
					nc, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						_ = h2.NewServer(nc, h2.Config{OnStream: func(st *h2.Stream, _ []h2.Field) {
							st.SetHandler(silentHandler{})
							st.WriteHeaders([]h2.Field{{Name: ":status", Value: "200"}, {Name: "serverid", Value: "s"}, {Name: "servercount", Value: "1"}})
							st.Flush()
							streams <- st
						}}).Serve()
					}()
				}
			}()
			t.Cleanup(func() { _ = l.Close(); <-served })
			r := &Rig{t: t, CA: ca, AgentTLS: l.Addr().String()}
			a := r.LaunchAgent(agent.Config{SyncInterval: time.Hour, SyncIntervalCap: time.Hour}, "")
			Eventually(t, Patience, "agent is connected", a.Ready)
			_ = l.Close() // so that the agent does not come back
			c.end(<-streams)
			Eventually(t, Patience, "agent has lost the server", func() bool { return !a.Ready() })
			a.Stop()
			const series = `konnectivity_network_proxy_agent_stream_errors_total{segment="to_agent",code="`
			for _, code := range []string{"Unavailable", "Canceled", "ResourceExhausted", "Unauthenticated", "Internal"} {
				want := map[bool]float64{true: 1}[code == c.code]
				if n := Metric(a.Metrics.Registry, series+code+`",packet_type="Unknown"}`); n != want {
					t.Errorf("%s is counted %v times, want %v", code, n, want)
				}
			}
		})
	}
}
