// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// forwardBound: all Pods together have a bound of upstream connections, of which a metric has the number. At
// the bound, connections to a Pod share those that it has, an idle one of another Pod makes room, and what
// is left is refused with what is wrong.
func forwardBound(t *testing.T, c forwardTest) {
	for _, name := range []string{"bound-1", "bound-2", "bound-3"} {
		c.Pod("default", name, "node-1", []string{"10.1.0.1"})
	}
	registry := prometheus.NewPedanticRegistry()
	d := c.dialer(t, Options{Registry: registry, PortForward: PortForwardOptions{MaxUpstreams: 2, StreamsPerConnection: 2, IdleTimeout: time.Hour}})
	counted := func(want int) error {
		return testutil.GatherAndCompare(registry, strings.NewReader(fmt.Sprintf(`# HELP fairlead_socks5_portforward_connections Connections to the API server that forward ports of Pods, with those that are idle.
# TYPE fairlead_socks5_portforward_connections gauge
fairlead_socks5_portforward_connections %d
`, want)))
	}
	port := listen(t, echo)
	first, second := mustDial(t, d, podAt("bound-1", port)), mustDial(t, d, podAt("bound-2", port))
	if err := counted(2); err != nil {
		t.Error(err)
	}
	shared := mustDial(t, d, podAt("bound-1", port))
	wantReason(t, d, podAt("bound-1", port), gateway.ReasonBusy, "2 connections to the API server", "limit for all Pods", "--via direct")
	wantReason(t, d, podAt("bound-3", port), gateway.ReasonBusy, "limit for all Pods")
	for i, conn := range []gateway.Conn{first, second, shared} {
		ping(t, conn, fmt.Sprint("word ", i))
	}
	if err := counted(2); err != nil {
		t.Error(err)
	}
	_ = second.Close()
	var third gateway.Conn
	daemontest.Eventually(t, time.Minute, func() (err error) { // the stream of the closed connection ends
		third, err = d.Dial(t.Context(), podAt("bound-3", port))
		return err
	})
	defer third.Close()
	_ = third.SetDeadline(time.Now().Add(testTimeout))
	ping(t, third, "in the place of an idle one")
	ping(t, first, "beside")
	daemontest.Eventually(t, time.Minute, func() error { return counted(2) })
	wantReason(t, d, podAt("bound-2", port), gateway.ReasonBusy, "limit for all Pods")
	_ = d.Close()
	daemontest.Eventually(t, time.Minute, func() error { return counted(0) })
}

// forwardBuffers: for a client that reads nothing and has an upstream of its own, little is held. One that shares
// its upstream has a large buffer for as long as it does.
func forwardBuffers(t *testing.T, c forwardTest) {
	d := c.dialer(t, Options{PortForward: PortForwardOptions{UnsharedConnections: 1, StallTimeout: time.Hour}})
	held := func(conn gateway.Conn) (size, limit int) {
		b := conn.(*slotted).Conn.(*forwarded).in
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.size, b.limit
	}
	fills := func(conn gateway.Conn, want int) {
		t.Helper()
		daemontest.Eventually(t, time.Minute, func() error {
			if size, limit := held(conn); limit != want || size < want || size > want+1<<20 {
				return fmt.Errorf("%d bytes are held of %d, want %d", size, limit, want)
			}
			return nil
		})
	}
	first := mustDial(t, d, podAt("web", listen(t, echo)))
	if _, limit := held(first); limit != 64<<10 {
		t.Errorf("a client alone may have %d bytes held", limit)
	}
	second := mustDial(t, d, podAt("web", listen(t, pour)))
	fills(second, 1<<20)
	if _, limit := held(first); limit != 1<<20 {
		t.Errorf("a client that shares may have %d bytes held", limit)
	}
	_ = second.Close()
	daemontest.Eventually(t, time.Minute, func() error {
		if _, limit := held(first); limit != 64<<10 {
			return fmt.Errorf("a client alone again may have %d bytes held", limit)
		}
		return nil
	})
	alone := mustDial(t, c.dialer(t, Options{}), podAt("web", listen(t, pour)))
	fills(alone, 64<<10)
	if size, _ := held(alone); size > 256<<10 {
		t.Errorf("%d bytes are held for a client alone", size)
	}
}
