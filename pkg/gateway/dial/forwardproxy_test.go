// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/auth"
	"github.com/fairlead-dev/fairlead/pkg/gateway/socks5"
)

// apiName is a name of the API server that only the proxy can resolve.
const apiName = "api.behind.example"

// proxyInFront leads to the API server by apiName. It speaks SOCKS5 and HTTP CONNECT, and counts
// the connections by protocol.
type proxyInFront struct {
	server netip.AddrPort
	mu     sync.Mutex
	ended  map[string]int
}

func (p *proxyInFront) Resolve(_ context.Context, host string, port uint16) (gateway.Destination, error) {
	if host != apiName {
		return gateway.Destination{}, gateway.Errorf(gateway.ReasonNotFound, "", "no host %q", host)
	}
	return gateway.Destination{Host: host, Port: port, Kind: gateway.KindExternal, Addr: p.server}, nil
}

func (*proxyInFront) Authorize(context.Context, user.Info, gateway.Destination) error { return nil }

func (*proxyInFront) Dial(ctx context.Context, d gateway.Destination) (gateway.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", d.Addr.String())
	if err != nil {
		return nil, err
	}
	return nc.(*net.TCPConn), nil
}

func (p *proxyInFront) count(protocol string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended[protocol]
}

// forwardThroughProxy: streams take the proxy of the kubeconfig, by each scheme, as WebSockets and
// by SPDY. Only the proxy knows the API server's name.
func forwardThroughProxy(t *testing.T, c forwardTest) {
	u, err := url.Parse(c.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxyInFront{server: netip.MustParseAddrPort(u.Host), ended: map[string]int{}}
	password, err := auth.NewPassword(auth.Login{Name: "me", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	srv := socks5.NewServer(socks5.Config{Resolver: p, Authorizer: p, Dialer: p, Authenticator: &auth.Authenticator{Password: password}, Audit: func(r socks5.Record) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ended[r.Protocol]++
	}})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = srv.Shutdown(ctx)
		<-done
	})
	arrives := func(what, scheme string, before int) {
		t.Helper()
		testutil.Eventually(t, testTimeout, func() error {
			if p.count(scheme) == before {
				return fmt.Errorf("%s did not take the proxy of scheme %s", what, scheme)
			}
			return nil
		})
	}
	for _, scheme := range []string{"socks5", "http"} { // as the protocols are named
		config := rest.CopyConfig(c.Config)
		config.Host = "https://" + net.JoinHostPort(apiName, u.Port())
		config.Proxy = http.ProxyURL(&url.URL{Scheme: scheme, Host: l.Addr().String(), User: url.UserPassword("me", "secret")})
		before := p.count(scheme)
		d := c.dialer(t, Options{Config: config})
		ping(t, mustDial(t, d, podAt("web", listen(t, echo))), "through "+scheme)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		arrives("a connection to a Pod", scheme, before)
		up, err := newUpgrader(config)
		if err != nil {
			t.Fatal(err)
		}
		to, err := url.Parse(config.Host + "/api/v1/namespaces/default/pods/web/portforward")
		if err != nil {
			t.Fatal(err)
		}
		for what, dial := range map[string]func(context.Context, *url.URL) (net.Conn, error){"WebSocket": up.dialWebSocket, "SPDY": up.dialSPDY} {
			before := p.count(scheme)
			conn, err := dial(t.Context(), to)
			if err != nil {
				t.Errorf("%s through %s: %v", what, scheme, err)
				continue
			}
			_ = conn.Close()
			arrives(what, scheme, before)
		}
	}
}
