// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// requestTimeout bounds a request to a server, and by itself the connection that is made for it.
const requestTimeout = 3 * time.Second

// Endpoints finds servers at fixed sockets and at all addresses of host names.
type Endpoints struct {
	// URLs are "unix:///PATH" or "https://HOST:PORT". A host is looked up in each round, so that servers may come and go.
	URLs []string
	// CAFile verifies the certificates of servers at https URLs. They must be for the host of the URL.
	CAFile string
	// TokenFile is the bearer token for servers at https URLs. It is read again when it changes.
	TokenFile string
	// Lookup resolves a host; nil asks the system.
	Lookup func(ctx context.Context, host string) ([]string, error)

	mu     sync.Mutex
	askers map[string]Asker    // of the last addresses
	last   map[string][]string // addresses of each URL when its host was last found
}

// ParseURL checks the URL of an endpoint.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a URL: %w", text, err)
	}
	switch {
	case u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/") && u.RawQuery == "":
		return u, nil
	case u.Scheme == "https" && u.Hostname() != "" && u.Port() != "" && (u.Path == "" || u.Path == "/") && u.RawQuery == "" && u.User == nil:
		return u, nil
	}
	return nil, fmt.Errorf("%q is neither unix:///PATH nor https://HOST:PORT", text)
}

// Find implements Finder.
func (e *Endpoints) Find(ctx context.Context) (map[string]Asker, error) {
	out := map[string]Asker{}
	var failed error
	for _, text := range e.URLs {
		u, err := ParseURL(text)
		if err != nil {
			return nil, err
		}
		if u.Scheme == "unix" {
			out[text] = e.asker(text, func() Asker { return unixAsker(u.Path) })
			continue
		}
		addrs, err := e.lookup(ctx, u.Hostname())
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("look up the servers of %s: %w", text, err))
		}
		for _, a := range e.lastOf(text, addrs, err) {
			address := net.JoinHostPort(a, u.Port())
			out[address] = e.asker(address, func() Asker { return e.tlsAsker(u, address) })
		}
	}
	e.keepOnly(out)
	return out, failed
}

// lastOf returns the addresses of a URL: those before if it cannot be looked up.
func (e *Endpoints) lastOf(text string, addrs []string, err error) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		return e.last[text]
	}
	if e.last == nil {
		e.last = map[string][]string{}
	}
	e.last[text] = addrs
	return addrs
}

// keepOnly forgets the askers of other addresses.
func (e *Endpoints) keepOnly(found map[string]Asker) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.askers, func(address string, _ Asker) bool { return found[address] == nil })
}

func (e *Endpoints) lookup(ctx context.Context, host string) ([]string, error) {
	if net.ParseIP(host) != nil {
		return []string{host}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if e.Lookup != nil {
		return e.Lookup(ctx, host)
	}
	return net.DefaultResolver.LookupHost(ctx, host)
}

// asker keeps the asker of an address, and with it its connections.
func (e *Endpoints) asker(address string, newAsker func() Asker) Asker {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.askers[address]
	if a == nil {
		a = newAsker()
		if e.askers == nil {
			e.askers = map[string]Asker{}
		}
		e.askers[address] = a
	}
	return a
}

// client asks one server. What clients of the API ask for has a transport of its own, with few connections: a server takes
// a limited number from one host, and those for its state must be among them.
type client struct {
	*state.Client
	lists *state.Client
}

// Connections implements Asker.
func (c *client) Connections(ctx context.Context, after int64, limit int) (*state.Connections, error) {
	return c.lists.Connections(ctx, after, limit)
}

// newClient returns a client that connects by dial.
func newClient(base string, dial func(context.Context) (net.Conn, error), token func() (string, error)) *client {
	with := func(conns int) *state.Client {
		toServer := func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
		return &state.Client{Base: base, Dial: dial, Token: token, HTTP: &http.Client{Transport: &http.Transport{
			DialContext: toServer, DialTLSContext: toServer, MaxConnsPerHost: conns, IdleConnTimeout: 20 * time.Second, MaxIdleConns: 2,
		}}}
	}
	return &client{with(0), with(MaxScans + 1)} // one more, so that single connections are asked for while scans run
}

func unixAsker(path string) Asker {
	d := net.Dialer{Timeout: requestTimeout}
	return newClient("http://konnectivity-server", func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "unix", path) }, nil)
}

// tlsAsker asks the server at one address of a host. The CA file is read for each connection, so that it may be replaced.
func (e *Endpoints) tlsAsker(u *url.URL, address string) Asker {
	dial := func(ctx context.Context) (net.Conn, error) {
		pool := x509.NewCertPool()
		pem, err := os.ReadFile(e.CAFile)
		if err != nil {
			return nil, err
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA file %s has no certificate in it", e.CAFile)
		}
		// The time is that of a request for state: a server that has frozen takes connections, and ends no handshake.
		d := tls.Dialer{NetDialer: &net.Dialer{Timeout: requestTimeout}, Config: &tls.Config{RootCAs: pool, ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}}
		return d.DialContext(ctx, "tcp", address)
	}
	return newClient("https://"+u.Host, dial, func() (string, error) {
		token, err := os.ReadFile(e.TokenFile)
		return strings.TrimSpace(string(token)), err
	})
}
