// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
)

// dialTimeout bounds the opening of a connection to the API server, as in client-go.
const dialTimeout = 30 * time.Second

// newAPI makes the handler that forwards to the API server.
func (h *Handler) newAPI() (http.Handler, error) {
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
	forward := func(transport http.RoundTripper) http.Handler {
		return &httputil.ReverseProxy{
			Transport: transport, BufferPool: &buffers,
			Rewrite:      func(r *httputil.ProxyRequest) { h.rewrite(r, target) },
			ErrorHandler: h.upstreamFailed,
			ErrorLog:     log.New(io.Discard, "", 0), // the access log has the request
		}
	}
	plain, upgrade := forward(requests), forward(upgrades)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if httpstream.IsUpgradeRequest(req) {
			upgrade.ServeHTTP(w, req)
			return
		}
		plain.ServeHTTP(w, req)
	}), nil
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
	if ip, _, err := net.SplitHostPort(r.In.RemoteAddr); err == nil {
		r.Out.Header.Set("X-Forwarded-For", ip)
	}
}

// transports are two for the same server: HTTP/2 has no upgrades.
func transports(config *rest.Config, keepalive time.Duration) (requests, upgrades http.RoundTripper, err error) {
	config = rest.CopyConfig(config)
	if keepalive != 0 && config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepalive}).DialContext
	}
	if requests, err = rest.TransportFor(config); err != nil {
		return nil, nil, err
	}
	config.NextProtos = []string{"http/1.1"}
	upgrades, err = rest.TransportFor(config)
	return requests, upgrades, err
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

// buffers are what answers are copied with.
var buffers bufferPool

type bufferPool struct{ pool sync.Pool }

// bufferSize is what ReverseProxy uses without a pool.
const bufferSize = 32 << 10

// Get implements httputil.BufferPool.
func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, bufferSize)
}

// Put implements httputil.BufferPool.
func (p *bufferPool) Put(b []byte) { p.pool.Put(&b) }
