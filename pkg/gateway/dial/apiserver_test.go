// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestAPIServer: paths that lead to Pods and nodes only, or take addresses only, or end at another machine's loopback, connect to the API server as the kubeconfig does, by
// address and by name. No other host, and no other port of it, is reached in that way. Close ends these connections, too.
func TestAPIServer(t *testing.T) {
	t.Parallel()
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

// TestAPIServerAddresses: of an API server with several addresses the next one is dialed if one does not answer,
// in its share of the time, and the failure of the first is reported if none does.
func TestAPIServerAddresses(t *testing.T) {
	t.Parallel()
	port := listen(t, echo) // on 127.0.0.1
	server := net.JoinHostPort("api.example", strconv.Itoa(int(port)))
	to := address(gateway.KindExternal, "api.example", port)
	silentPort(t, "127.0.0.3", port)
	for _, c := range []struct {
		name  string
		addrs []string
		ok    bool
	}{
		{"the first refuses", []string{"127.0.0.2", "::ffff:127.0.0.1"}, true},
		{"there is no route to the first", []string{"255.255.255.255", "127.0.0.1"}, true},
		{"the first is silent", []string{"127.0.0.3", "127.0.0.1"}, true},
		{"the third answers", []string{"127.0.0.2", "127.0.0.4", "127.0.0.1"}, true},
		{"none answers", []string{"127.0.0.2", "127.0.0.4"}, false},
		{"there is none", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newDialer(t, ViaNetwork, Options{APIServer: server, Timeout: 6 * time.Second})
			d.(*dialer).lookUp = func(_ context.Context, _, host string) (addrs []netip.Addr, err error) {
				if host != "api.example" {
					return nil, errors.New("no such host")
				}
				for _, text := range c.addrs {
					addrs = append(addrs, netip.MustParseAddr(text))
				}
				return addrs, nil
			}
			switch {
			case c.ok:
				ping(t, mustDial(t, d, to), "hello")
			case c.addrs == nil:
				wantReason(t, d, to, gateway.ReasonNotFound, "its name has none")
			default:
				wantReason(t, d, to, gateway.ReasonRefused, "127.0.0.2")
			}
		})
	}
}

// TestAPIServerByNameOfOurs: a kubeconfig may name the API server in a way that agents cannot resolve, for example as a
// Service of the cluster that hosts the control plane. It is connected to from here then. No other name is, and
// nothing that the agent denies.
func TestAPIServerByNameOfOurs(t *testing.T) {
	t.Parallel()
	deny, err := destinations.ParseRules("*.denied.invalid")
	if err != nil {
		t.Fatal(err)
	}
	rig := tunneltest.NewRig(t, server.Config{})
	rig.StartAgent(agent.Config{Policy: destinations.Policy{Deny: deny}}, "")
	port := listen(t, echo)
	for mode, socket := range map[string]string{ModeHTTPConnect: rig.Connect, ModeGRPC: rig.GRPC} {
		for host, reason := range map[string]gateway.Reason{"api.hosted.invalid": "", "api.denied.invalid": gateway.ReasonDenied} {
			d := newDialer(t, ViaDirect, Options{APIServer: net.JoinHostPort(host, strconv.Itoa(int(port))), Direct: DirectOptions{Socket: socket, Mode: mode}})
			d.(*dialer).lookUp = func(context.Context, string, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			}
			if to := address(gateway.KindExternal, host, port); reason == "" {
				ping(t, mustDial(t, d, to), "hello")
			} else {
				wantReason(t, d, to, reason, "denied by rule")
			}
			wantReason(t, d, address(gateway.KindExternal, "other.hosted.invalid", port), gateway.ReasonNotFound, "other.hosted.invalid")
			wantReason(t, d, address(gateway.KindExternal, "api.hosted.invalid", port+1), gateway.ReasonNotFound, "api.hosted.invalid")
		}
	}
}

// silentPort takes up connections at an address only as far as its full queue allows, so that further ones get no answer.
func silentPort(t *testing.T, host string, port uint16) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	sa := &unix.SockaddrInet4{Port: int(port), Addr: netip.MustParseAddr(host).As4()}
	if err := errors.Join(unix.Bind(fd, sa), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for range 4 { // its queue has place for one or two
		d := net.Dialer{Timeout: time.Second} // what the kernel accepts, it accepts at once
		c, err := d.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			return
		case err != nil:
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("the queue takes all connections")
}
