// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest/kasdial"
)

// hangs reviews tokens for as long as it may.
type hangs struct{ asked chan struct{} }

func (h hangs) Check(ctx context.Context, _, _ string) (string, error) {
	h.asked <- struct{}{}
	<-ctx.Done()
	return "", ctx.Err()
}

// stopBound is more than stopping takes on a busy machine, and less than handshakes
// may take in these tests.
const stopBound = tunneltest.Patience

// longHandshakes is how long handshakes may take.
const longHandshakes = 5 * stopBound

// wantStop stops the server without a grace.
func wantStop(t *testing.T, r *tunneltest.Rig) {
	t.Helper()
	start := time.Now()
	r.Stop()
	if d := time.Since(start); d > stopBound {
		t.Errorf("stopping took %v", d)
	}
}

// TestStopDuringReview: an API server that does not answer a TokenReview does not
// hold the server up.
func TestStopDuringReview(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			h := hangs{make(chan struct{}, 100)}
			r := tunneltest.NewRig(t, server.Config{Tokens: h, Protocol: tunneltest.Only(upstreamOnly), HandshakeTimeout: longHandshakes})
			a := r.LaunchAgent(agent.Config{Token: func() (string, error) { return "token", nil }}, "")
			<-h.asked
			wantStop(t, r)
			a.Stop()
		})
	}
}

// TestStopDuringHandshake: peers that have connected and say nothing do not hold
// the server up, on any of its TLS listeners.
func TestStopDuringHandshake(t *testing.T) {
	t.Parallel()
	r := tunneltest.NewRig(t, server.Config{HandshakeTimeout: longHandshakes})
	cfg, err := r.AgentTLSConfig()()
	if err != nil {
		t.Fatal(err)
	}
	grpc, connect := r.FrontendsTLS()
	for _, addr := range []string{r.AgentTLS, grpc, connect} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte{22, 3, 1}); err != nil { // the beginning of a ClientHello
			t.Fatal(err)
		}
		whole, err := tls.Dial("tcp", addr, cfg) // the listener has accepted what came before it
		if err != nil {
			t.Fatal(err)
		}
		_ = whole.Close()
	}
	wantStop(t, r)
}

// TestStopBesideSilentClients: clients that have connected and asked for nothing do not
// use up the grace, also where a part of the request has come. One that asks in time is
// served.
func TestStopBesideSilentClients(t *testing.T) {
	t.Parallel()
	r := tunneltest.NewRig(t, server.Config{FirstStream: 3 * time.Second})
	r.StartAgent(agent.Config{}, "")
	addr := tunneltest.Target(t, tunneltest.Echo)
	var conns []net.Conn
	for _, request := range []string{"", "CONNECT 10.0.0.1:", ""} {
		c, err := net.Dial("unix", r.Connect)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	_ = tunneltest.MustDial(t, tunneltest.Connect(r.Connect), addr).Close() // the listener has accepted what came before it
	grace, cancel := context.WithTimeout(t.Context(), tunneltest.Patience)
	defer cancel()
	done := make(chan time.Duration, 1)
	go func() {
		start := time.Now()
		r.Shutdown(grace)
		done <- time.Since(start)
	}()
	tunneltest.Eventually(t, tunneltest.Patience, "the server stops", func() bool {
		_, err := os.Stat(r.Connect)
		return errors.Is(err, os.ErrNotExist)
	})
	late, err := kasdial.Handshake(conns[2], addr)
	if err != nil {
		t.Fatalf("a request that comes in time: %v", err)
	}
	for _, silent := range conns[:2] { // until FirstStream is over
		_, _ = io.Copy(io.Discard, silent)
	}
	if _, err := late.Write([]byte{1}); err != nil {
		t.Errorf("the connection of that request: %v", err)
	}
	if n, err := late.Read(make([]byte, 1)); n != 1 {
		t.Errorf("the connection of that request: %v", err)
	}
	_ = late.Close()
	if d := <-done; d > stopBound {
		t.Errorf("stopping took %v", d)
	}
}
