// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"net"
	"strconv"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// TestAPIServer: paths that lead to Pods and nodes only, or take addresses only, or end at another machine's loopback, connect to the API server as the kubeconfig does, by
// address and by name. No other host, and no other port of it, is reached in that way. Close ends these connections, too.
func TestAPIServer(t *testing.T) {
	port := listen(t, echo)
	for _, via := range []string{ViaPortForward, ViaNetwork, ViaDirect} {
		for _, host := range []string{"127.0.0.1", "localhost"} {
			server := net.JoinHostPort(host, strconv.Itoa(int(port)))
			d := newDialer(t, via, Options{Config: &rest.Config{Host: "https://" + server}, APIServer: server, Direct: DirectOptions{Socket: "/no/such/socket"}})
			c := mustDial(t, d, address(gateway.KindExternal, host, port))
			ping(t, c, "hello")
			switch via {
			case ViaPortForward:
				wantReason(t, d, address(gateway.KindExternal, host, port+1), gateway.ReasonUnsupported, "--via ssh")
				wantReason(t, d, address(gateway.KindExternal, "192.0.2.1", port), gateway.ReasonUnsupported, "--via ssh")
			case ViaNetwork:
				wantReason(t, d, address(gateway.KindExternal, "other.example", port), gateway.ReasonNotFound, "not known")
			case ViaDirect:
				wantReason(t, d, address(gateway.KindExternal, host, port+1), gateway.ReasonPathDown, "/no/such/socket")
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Errorf("%s to %s: the connection is open after Close", via, host)
			}
		}
	}
}
