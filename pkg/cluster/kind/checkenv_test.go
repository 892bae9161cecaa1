// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// The metrics of all servers are read directly, each once. If a server cannot be
// reached from here, or listens on loopback only, which is the default, its metrics are
// read on its own node instead.
func TestServerMetrics(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("direct 1\n")) }))
	t.Cleanup(server.Close)
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fakeRuntime(t, `case "$1" in
ps) printf 'fairlead-dev-control-plane\nfairlead-dev-control-plane2\nfairlead-dev-control-plane3\nfairlead-dev-worker\n' ;;
exec) echo "on its node 1" ;;
*) exit 1 ;;
esac
`)
	p := newTestPlan(t, "")
	p.state.Runtime = "docker"
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	p.bundle.Konnectivity.Server.HealthPort = int32(number)
	addresses := map[string]string{}
	for _, n := range p.nodes() {
		addresses[n.name] = host
	}
	for _, c := range []struct {
		want, bind string
		given      map[string]string
	}{
		{"direct 1", "0.0.0.0", addresses},
		{"on its node 1", "0.0.0.0", nil},
		{"on its node 1", p.bundle.Konnectivity.Server.HealthBindAddress, addresses},
	} {
		p.bundle.Konnectivity.Server.HealthBindAddress = c.bind
		text, err := p.serverMetrics(c.given)(t.Context())
		if err != nil || strings.Count(string(text), c.want) != 3 {
			t.Errorf("got %q, %v; want %q of three servers", text, err, c.want)
		}
	}
}
