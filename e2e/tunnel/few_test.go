// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestFewDescriptors: idle connections to the health listener of a server that may have few
// descriptors leave the tunnel enough: dials succeed and a new agent gets in. So does a probe.
func TestFewDescriptors(t *testing.T) {
	testutil.Full(t, "uses up all file descriptors")
	const descriptorLimit, attackers = 256, 240
	p := startPair(t, options{mode: "grpc", serverFiles: descriptorLimit})
	var conns []net.Conn
	for range attackers {
		nc, err := net.Dial("tcp", strings.TrimPrefix(p.serverHealth, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_, _ = io.WriteString(nc, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		conns = append(conns, nc)
	}
	// Connections are taken in the order in which they came, so when this is answered the
	// server has closed all that it does not keep.
	resp, err := http.Get(p.serverHealth + "/healthz")
	if err != nil {
		t.Fatalf("a probe while %d connections are held: %v", attackers, err)
	}
	_ = resp.Body.Close()
	kept := 0
	for _, nc := range conns {
		_ = nc.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := io.Copy(io.Discard, nc); errors.Is(err, os.ErrDeadlineExceeded) {
			kept++
		}
	}
	if kept == 0 || kept > descriptorLimit/8 {
		t.Errorf("%d connections are kept, want at most %d", kept, descriptorLimit/8)
	}
	used := descriptors(t, p.server)
	var took []time.Duration
	p.dials(t, &took)
	start := time.Now()
	p.startAgent()
	joined := time.Since(start)
	tunneltest.Unavailable(t, slices.Max(took))
	t.Logf("%d of %d health connections are kept, %d of %d descriptors in use; %d dials, p50 %v, p99 %v; a new agent is ready after %v",
		kept, attackers, used, descriptorLimit, len(took), median(took), high(took), joined.Round(time.Millisecond))
}
