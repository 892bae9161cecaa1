package server_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/konntest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// hangs reviews tokens for as long as it may.
type hangs struct{ asked chan struct{} }

func (h hangs) Check(ctx context.Context, _ string) (string, error) {
	h.asked <- struct{}{}
	<-ctx.Done()
	return "", ctx.Err()
}

// stopBound is more than stopping takes on a busy machine, and less than handshakes
// may take.
const stopBound = 10 * time.Second

// wantStop stops the server without a grace.
func wantStop(t *testing.T, r *konntest.Rig) {
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
	for _, reference := range []bool{false, true} {
		t.Run(fmt.Sprintf("reference=%v", reference), func(t *testing.T) {
			h := hangs{make(chan struct{}, 100)}
			r := konntest.NewRig(t, server.Config{Tokens: h, ReferenceOnly: reference})
			a := r.LaunchAgent(agent.Config{}, "")
			<-h.asked
			wantStop(t, r)
			a.Stop()
		})
	}
}

// TestStopDuringHandshake: peers that have connected and say nothing do not hold
// the server up, on any of its TLS listeners.
func TestStopDuringHandshake(t *testing.T) {
	r := konntest.NewRig(t, server.Config{})
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
	}
	time.Sleep(200 * time.Millisecond) // so that they are accepted
	wantStop(t, r)
}
