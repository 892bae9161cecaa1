// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"context"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/dial"
)

// resolverFunc makes a function a gateway.Resolver.
type resolverFunc func(host string, port uint16) gateway.Destination

func (f resolverFunc) Resolve(_ context.Context, host string, port uint16) (gateway.Destination, error) {
	return f(host, port), nil
}

// TestRecordAfterFailover: the audit log and the metrics have what a connection leads to, and not what was tried before: another
// endpoint of the Service, also one that is a node or a Pod of another namespace, another address of a host, and the address of the
// API server. Where nothing answers, they have what was asked for, as the error does.
func TestRecordAfterFailover(t *testing.T) {
	t.Parallel()
	at := serveTCP(t, echo) // on 127.0.0.1
	refuses, also := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), at.Port()), netip.AddrPortFrom(netip.MustParseAddr("127.0.0.3"), at.Port())
	service := func(addr netip.AddrPort) gateway.Destination {
		return gateway.Destination{Host: "web.shop", Port: 7, Kind: gateway.KindService, Namespace: "shop", Name: "web", Addr: addr}
	}
	object := func(kind gateway.Kind, namespace, name string, addr netip.AddrPort) gateway.Destination {
		return gateway.Destination{Host: "web.shop", Port: 7, Kind: kind, Namespace: namespace, Name: name, Addr: addr}
	}
	outside := func(addr netip.AddrPort) gateway.Destination {
		return gateway.Destination{Host: "web.example.org", Port: 7, Kind: gateway.KindExternal, Addr: addr}
	}
	for name, c := range map[string]struct {
		first  gateway.Destination
		others []gateway.Destination
		want   Record // Result is ResultOK unless it says something else
	}{
		"another endpoint":   {service(refuses), []gateway.Destination{service(at)}, Record{Kind: "Service", Namespace: "shop", Name: "web", Address: at.String()}},
		"the third endpoint": {service(refuses), []gateway.Destination{service(also), service(at)}, Record{Kind: "Service", Namespace: "shop", Name: "web", Address: at.String()}},
		"a node": {object(gateway.KindPod, "other", "p", refuses), []gateway.Destination{object(gateway.KindNode, "", "node-1", at)},
			Record{Kind: "Node", Name: "node-1", Address: at.String()}},
		"another Pod": {object(gateway.KindNode, "", "node-1", refuses), []gateway.Destination{object(gateway.KindPod, "other", "p", at)},
			Record{Kind: "Pod", Namespace: "other", Name: "p", Address: at.String()}},
		"another address": {outside(refuses), []gateway.Destination{outside(at)}, Record{Kind: "External", Address: at.String()}},
		"the API server":  {gateway.Destination{Host: "localhost", Port: at.Port(), Kind: gateway.KindExternal}, nil, Record{Kind: "External", Address: at.String()}},
		"the first":       {service(at), []gateway.Destination{object(gateway.KindNode, "", "node-1", also)}, Record{Kind: "Service", Namespace: "shop", Name: "web", Address: at.String()}},
		"none": {service(refuses), []gateway.Destination{object(gateway.KindNode, "", "node-1", also)},
			Record{Kind: "Service", Namespace: "shop", Name: "web", Address: refuses.String(), Result: string(gateway.ReasonRefused)}},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := dial.New(dial.ViaNetwork, dial.Options{
				APIServer:    gateway.Destination{Host: "localhost", Port: at.Port()}.String(),
				Alternatives: func(context.Context, gateway.Destination) ([]gateway.Destination, error) { return c.others, nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close() //nolint:errcheck // its connections are closed
			metrics := NewMetrics(nil)
			w := newWorld(t, func(_ *world, cfg *Config) {
				cfg.Dialer, cfg.Metrics = d, metrics
				cfg.Resolver = resolverFunc(func(string, uint16) gateway.Destination { return c.first })
			})
			if c.want.Result == "" {
				c.want.Result = ResultOK
				nc := connectHTTP(t, w, "web.shop", "")
				_ = nc.CloseWrite()
				_, _ = io.ReadAll(nc)
				_ = nc.Close()
			} else if got := refusalOf(t, w.addr, "web.shop:7"); !strings.Contains(got, c.want.Result) {
				t.Errorf("the answer is %s", got)
			}
			r := w.ended(t, 1)[0]
			if r.Kind != c.want.Kind || r.Namespace != c.want.Namespace || r.Name != c.want.Name || r.Address != c.want.Address || r.Result != c.want.Result {
				t.Errorf("the record is %+v, want %+v", r, c.want)
			}
			for _, kind := range []gateway.Kind{gateway.KindService, gateway.KindPod, gateway.KindNode, gateway.KindExternal} {
				want := 0.0
				if string(kind) == c.want.Kind {
					want = 1
				}
				if n := testutil.ToFloat64(metrics.connections.WithLabelValues("http", string(kind), c.want.Result)); n != want {
					t.Errorf("%v connections to a %s are counted, want %v", n, kind, want)
				}
			}
			if n := testutil.CollectAndCount(metrics.dialSeconds); n != 1 {
				t.Errorf("dials of %d kinds are counted", n)
			}
			if got := metrics.dialSeconds.DeleteLabelValues(c.want.Kind); !got {
				t.Errorf("no dial to a %s is counted", c.want.Kind)
			}
		})
	}
}
