// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/moby/spdystream"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// TestResetBeforeReply: a node that fails at once may reset the data stream before it has
// replied to it. The dial fails with the text of the error stream all the same.
func TestResetBeforeReply(t *testing.T) {
	t.Parallel()
	var failures *spdystream.Stream
	at := listen(t, func(c *net.TCPConn) {
		node, err := spdystream.NewConnection(c, true)
		if err != nil {
			t.Error(err)
			return
		}
		node.Serve(func(s *spdystream.Stream) {
			if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
				failures = s
				_ = s.SendReply(nil, false)
				return
			}
			_, _ = failures.Write([]byte("dial tcp4 127.0.0.1:80: connect: connection refused"))
			_ = failures.Close()
			_ = s.Reset()
		})
	})
	raw, err := net.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), at).String())
	if err != nil {
		t.Fatal(err)
	}
	var o PortForwardOptions
	o.complete()
	var goroutines sync.WaitGroup
	u, err := newUpstream("default/web", raw, o, &goroutines)
	if err != nil {
		t.Fatal(err)
	}
	defer goroutines.Wait()
	defer u.close()
	if !u.reserve() {
		t.Fatal("a new connection has no place")
	}
	if _, err := u.open(t.Context(), podAt("web", 80), 80); gateway.ReasonOf(err) != gateway.ReasonRefused {
		t.Errorf("dial: %v, want reason %s", err, gateway.ReasonRefused)
	}
}
