// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

func endpointAt(host string, port uint16) gateway.Destination {
	to := at(port)
	to.Addr = netip.AddrPortFrom(netip.MustParseAddr(host), port)
	return to
}

// TestSilentEndpoint: an endpoint that does not answer, such as one on a node without power, leaves time for the others of its Service.
func TestSilentEndpoint(t *testing.T) {
	t.Parallel()
	port := listen(t, echo) // on 127.0.0.1
	silentPort(t, "127.0.0.5", port)
	silentPort(t, "127.0.0.6", port)
	working, dead, alsoDead := at(port), endpointAt("127.0.0.5", port), endpointAt("127.0.0.6", port)
	for name, others := range map[string][]gateway.Destination{
		"the second answers": {working}, "the third answers": {alsoDead, working}, "of more, two are tried": {alsoDead, working, alsoDead, alsoDead},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDialer(t, ViaNetwork, Options{Timeout: 6 * time.Second, Alternatives: func(ctx context.Context, _ gateway.Destination) ([]gateway.Destination, error) {
				return others, ctx.Err()
			}})
			ping(t, mustDial(t, d, dead), "another endpoint")
		})
	}
	// One that the client may not reach is no other.
	d := newDialer(t, ViaNetwork, Options{Timeout: time.Second, Alternatives: func(context.Context, gateway.Destination) ([]gateway.Destination, error) {
		return []gateway.Destination{working}, nil
	}})
	denied := gateway.WithCheck(t.Context(), func(gateway.Destination) error { return errors.New("denied") })
	if c, err := d.Dial(denied, dead); gateway.ReasonOf(err) != gateway.ReasonTimeout {
		t.Errorf("a denied alternative: %v, %v", c, err)
	}
	d = newDialer(t, ViaNetwork, Options{Timeout: time.Second, Alternatives: func(context.Context, gateway.Destination) ([]gateway.Destination, error) {
		return []gateway.Destination{alsoDead}, nil
	}})
	wantReason(t, d, dead, gateway.ReasonTimeout, "web.default:80", "no answer")
}

// TestLookupOfOthers: others are asked for as the context says, and what was dialed first says what is wrong if they cannot be.
func TestLookupOfOthers(t *testing.T) {
	t.Parallel()
	port := listen(t, echo)
	working, dead := at(port), endpointAt("127.0.0.9", port) // refused
	asked := 0
	d := newDialer(t, ViaNetwork, Options{Timeout: 9 * time.Second, Alternatives: func(ctx context.Context, _ gateway.Destination) ([]gateway.Destination, error) {
		asked++
		return []gateway.Destination{working}, ctx.Err()
	}})
	busy := gateway.Errorf(gateway.ReasonBusy, "", "too many lookups")
	refuses := gateway.WithLookup(t.Context(), func(context.Context, func(context.Context)) error { return busy })
	if c, err := d.Dial(refuses, dead); gateway.ReasonOf(err) != gateway.ReasonRefused || asked != 0 {
		t.Errorf("without a lookup: %v, %v, %d lookups", c, err, asked)
	}
	lookups := 0
	allows := gateway.WithLookup(t.Context(), func(ctx context.Context, ask func(context.Context)) error {
		lookups++
		ask(context.WithoutCancel(ctx))
		return nil
	})
	c, err := d.Dial(allows, dead)
	if err != nil || lookups != 1 || asked != 1 {
		t.Fatalf("with one: %v, %d lookups of %d", err, asked, lookups)
	}
	ping(t, c, "another endpoint")
}

// slowPath answers after a time.
type slowPath struct {
	*network
	after time.Duration
}

func (p slowPath) Dial(ctx context.Context, to gateway.Destination) (gateway.Conn, error) {
	select {
	case <-time.After(p.after):
		return p.network.Dial(ctx, to)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// TestSlowEndpoint: an endpoint without others has all of the time, also while the search for others has no answer.
func TestSlowEndpoint(t *testing.T) {
	t.Parallel()
	for name, alternatives := range map[string]func(context.Context, gateway.Destination) ([]gateway.Destination, error){
		"there are no others": func(context.Context, gateway.Destination) ([]gateway.Destination, error) { return nil, nil },
		"the search fails": func(context.Context, gateway.Destination) ([]gateway.Destination, error) {
			return nil, errors.New("no answer")
		},
		"the search does not end": func(ctx context.Context, _ gateway.Destination) ([]gateway.Destination, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDialer(t, ViaNetwork, Options{Timeout: 6 * time.Second, Alternatives: alternatives})
			d.(*dialer).path = slowPath{newNetwork(), 3 * time.Second} // a share is 2 seconds
			ping(t, mustDial(t, d, at(listen(t, echo))), "slow")
		})
	}
}

// TestNoDescriptors: a process without free descriptors is busy, and says what to raise.
func TestNoDescriptors(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{syscall.EMFILE, syscall.ENFILE} {
		err := asError(t.Context(), &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", cause)}, at(80))
		if gateway.ReasonOf(err) != gateway.ReasonBusy || !strings.Contains(err.Error(), "ulimit -n") {
			t.Errorf("%v: %v", cause, err)
		}
	}
}
