// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

func at(port uint16) gateway.Destination {
	return gateway.Destination{Host: "web.default", Port: 80, Kind: gateway.KindService, Namespace: "default", Name: "web",
		Addr: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)}
}

// TestNetwork: bytes flow both ways, each direction ends by itself, and Close ends what is open.
func TestNetwork(t *testing.T) {
	t.Parallel()
	d := newDialer(t, ViaNetwork, Options{})
	ping(t, mustDial(t, d, at(listen(t, echo))), "hello")
	half := mustDial(t, d, at(listen(t, answerAtEnd)))
	if _, err := io.WriteString(half, "all of it"); err != nil {
		t.Fatal(err)
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(half); err != nil || string(got) != "all of it" {
		t.Errorf("after the end of one direction: %q, %v", got, err)
	}
	open := mustDial(t, d, at(listen(t, silent)))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := open.Read(make([]byte, 1)); err == nil {
		t.Error("a connection is still open after Close")
	}
	if _, err := d.Dial(t.Context(), at(listen(t, echo))); gateway.ReasonOf(err) != gateway.ReasonPathDown {
		t.Errorf("a dial after Close: %v", err)
	}
}

// TestNetworkFailures: each failure has its reason, and a Service fails over to another endpoint.
func TestNetworkFailures(t *testing.T) {
	t.Parallel()
	d := newDialer(t, ViaNetwork, Options{Timeout: 300 * time.Millisecond})
	unknown := at(1)
	unknown.Addr = netip.AddrPort{}
	far := at(80)
	far.Addr = netip.MustParseAddrPort("255.255.255.255:80") // no route for TCP
	for want, to := range map[gateway.Reason]gateway.Destination{
		gateway.ReasonRefused: at(refusing(t)), gateway.ReasonNotFound: unknown, gateway.ReasonHostUnreachable: far,
	} {
		if c, err := d.Dial(t.Context(), to); gateway.ReasonOf(err) != want {
			t.Errorf("%v: %v, %v; want %s", to.Addr, c, err, want)
		}
	}
	working := at(listen(t, echo))
	d = newDialer(t, ViaNetwork, Options{Alternatives: func(context.Context, gateway.Destination) ([]gateway.Destination, error) {
		return []gateway.Destination{working}, nil
	}})
	ping(t, mustDial(t, d, at(refusing(t))), "second endpoint")

	// Of a host outside of the cluster another address is tried, if the rules allow that.
	outside := func(port uint16) gateway.Destination {
		return gateway.Destination{Host: "www.example.com", Port: 80, Kind: gateway.KindExternal, Addr: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)}
	}
	working = outside(listen(t, echo))
	ping(t, mustDial(t, d, outside(refusing(t))), "second address")
	denied := gateway.WithCheck(t.Context(), func(gateway.Destination) error { return errors.New("denied") })
	if c, err := d.Dial(denied, outside(refusing(t))); gateway.ReasonOf(err) != gateway.ReasonRefused {
		t.Errorf("an address that is denied: %v, %v", c, err)
	}
}
