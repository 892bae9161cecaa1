// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

const (
	// dialTimeout bounds the opening of a connection to the API server, and defaultKeepalive is the period of
	// its probes, as in client-go.
	dialTimeout      = 30 * time.Second
	defaultKeepalive = 30 * time.Second
	// frameSize is the size of the pieces in which the API server sends bodies. Each costs it and the proxy a
	// change of goroutines, and one of the default size of 16 KiB needs eight times as many.
	frameSize = 128 << 10
)

// newAPI makes what forwards to the API server.
func (h *Handler) newAPI() (func(*recorder, *http.Request), error) {
	target, _, err := rest.DefaultServerUrlFor(h.o.Config)
	if err != nil {
		return nil, fmt.Errorf("the API server's address %q: %w: correct it in the kubeconfig", h.o.Config.Host, err)
	}
	requests, upgrades, err := transports(h.o.Config, h.o.Keepalive)
	if err != nil {
		return nil, fmt.Errorf("credentials for the API server %s: %w: correct them in the kubeconfig", target.Host, err)
	}
	if !h.o.AppendServerPath {
		target.Path = ""
	}
	forward := func(transport http.RoundTripper, buffers *bufferPool) http.Handler {
		return &httputil.ReverseProxy{
			Transport: transport, BufferPool: buffers,
			Rewrite:      func(r *httputil.ProxyRequest) { h.rewrite(r, target) },
			ErrorHandler: h.upstreamFailed,
			ErrorLog:     log.New(io.Discard, "", 0), // the access log has the request
		}
	}
	plain, streams, upgrade := forward(requests, &largeBuffers), forward(requests, &smallBuffers), forward(upgrades, &smallBuffers)
	return func(rec *recorder, req *http.Request) {
		switch rec.kind {
		case kindUpgrade:
			upgrade.ServeHTTP(rec, req)
		case kindStream:
			streams.ServeHTTP(rec, req)
		default:
			plain.ServeHTTP(rec, req)
		}
	}, nil
}

// rewrite addresses a request to the API server.
func (h *Handler) rewrite(r *httputil.ProxyRequest, target *url.URL) {
	query := r.In.URL.RawQuery
	r.SetURL(target)
	// ReverseProxy leaves out parameters that it cannot read. The API server decides.
	r.Out.URL.RawQuery = query
	r.Out.Host = target.Host
	if h.o.Token != "" {
		r.Out.Header.Del("Authorization")
	}
	if impersonates(h.o.Config.Impersonate) {
		dropImpersonation(r.Out.Header)
	}
	if ip, _, err := net.SplitHostPort(r.In.RemoteAddr); err == nil {
		r.Out.Header.Set("X-Forwarded-For", ip)
	}
}

// impersonates reports whether requests are those of another user than the one of the credentials.
func impersonates(c rest.ImpersonationConfig) bool {
	return c.UserName != "" || c.UID != "" || len(c.Groups) > 0 || len(c.Extra) > 0
}

// dropImpersonation removes what a client wants to be. client-go adds the configured groups to those of the client, and adds
// nothing if the client names a user.
func dropImpersonation(h http.Header) {
	const prefix = "Impersonate-" // user, UID, groups and extra values
	maps.DeleteFunc(h, func(key string, _ []string) bool {
		return len(key) >= len(prefix) && strings.EqualFold(key[:len(prefix)], prefix)
	})
}

// transports are two for the same server: HTTP/2 has no upgrades.
func transports(config *rest.Config, keepalive time.Duration) (requests, upgrades http.RoundTripper, err error) {
	config = rest.CopyConfig(config)
	keepalive = cmp.Or(keepalive, defaultKeepalive)
	dial := config.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepalive}).DialContext
	}
	// client-go shares transports between equal configurations, but not between functions.
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dial(ctx, network, address)
	}
	if requests, err = rest.TransportFor(config); err != nil {
		return nil, nil, err
	}
	largeFrames(requests)
	config.NextProtos = []string{"http/1.1"}
	upgrades, err = rest.TransportFor(config)
	return requests, upgrades, err
}

// largeFrames lets the API server send larger frames of HTTP/2 to a transport that has no connection yet.
func largeFrames(rt http.RoundTripper) {
	for {
		if t, ok := rt.(*http.Transport); ok {
			t.HTTP2 = &http.HTTP2Config{MaxReadFrameSize: frameSize}
			return
		}
		wrapper, ok := rt.(utilnet.RoundTripperWrapper)
		if !ok {
			return
		}
		rt = wrapper.WrappedRoundTripper()
	}
}

// upstreamFailed answers where the API server did not.
func (h *Handler) upstreamFailed(w http.ResponseWriter, req *http.Request, err error) {
	rec, ok := w.(*recorder)
	if !ok {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	if errors.Is(err, context.Canceled) && req.Context().Err() != nil {
		rec.abandoned(context.Cause(req.Context()))
		return
	}
	rec.refuse(http.StatusBadGateway, refusal{"api-server", "the proxy cannot reach the API server: " + h.o.Explain(err)})
}

// Buffers are what answers are copied with. A stream keeps one for as long as it lasts and has little to
// copy at a time, so its buffer is of the size that ReverseProxy uses without a pool.
var (
	largeBuffers = bufferPool{size: 128 << 10}
	smallBuffers = bufferPool{size: 32 << 10}
)

type bufferPool struct {
	size int
	pool sync.Pool
}

// Get implements httputil.BufferPool.
func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, p.size)
}

// Put implements httputil.BufferPool.
func (p *bufferPool) Put(b []byte) { p.pool.Put(&b) }
