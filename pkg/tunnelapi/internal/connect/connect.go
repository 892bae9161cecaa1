// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
	"github.com/fairlead-dev/fairlead/pkg/internal/wsconn"
)

// Config configures a Handler. Durations of 0 do not exist, except IdleTimeout.
type Config struct {
	// Resolver finds out what a host and a port are, and Destinations who may connect to it.
	Resolver     gateway.Resolver
	Destinations *Destinations
	// Create decides who may create the subresource.
	Create authorizer.Authorizer
	// Dial connects to an address through an agent.
	Dial func(ctx context.Context, agent *v1alpha1.TunnelAgent, address string) (net.Conn, error)
	// DialTimeout bounds the time from the request to the connection.
	DialTimeout time.Duration
	// IdleTimeout ends a connection that carries no bytes for so long; 0 never does.
	IdleTimeout time.Duration
	// PingInterval is the time between two control frames, which keep idle connections known to proxies on the way.
	PingInterval time.Duration
	// MaxConnections bounds the connections and dials in all, and MaxPerUser those of one user.
	MaxConnections, MaxPerUser int
}

// Handler serves the subresource.
type Handler struct {
	cfg    Config
	limits limits // of connections
	checks limits // of requests whose right to connect is being asked for
	open   sync.WaitGroup

	mu      sync.Mutex
	streams map[*wsconn.Conn]struct{}
	closing bool // no new connections
	ending  bool // those that are open are reset
}

// New returns a handler.
func New(cfg Config) *Handler {
	register()
	bounds := func(what, hint string) limits {
		return limits{total: cfg.MaxConnections, each: cfg.MaxPerUser, users: map[string]int{}, what: what, hint: hint}
	}
	return &Handler{cfg: cfg, streams: map[*wsconn.Conn]struct{}{},
		limits: bounds("open connections", "close some of them"), checks: bounds("requests whose rights are being asked for", "try again")}
}

// Serve returns what serves a request for a connection through an agent.
func (h *Handler) Serve(agent *v1alpha1.TunnelAgent, o *v1alpha1.TunnelAgentConnectOptions, responder rest.Responder) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r := newRecord(req.Context(), agent.Name, o)
		defer r.done()
		if err := h.serve(w, req, agent, o, r); err != nil {
			r.refused(err)
			responder.Error(statusError(err))
		}
	})
}

// Refused notes a request that never comes to Serve, for example because there is no such agent.
func (h *Handler) Refused(ctx context.Context, agent string, o *v1alpha1.TunnelAgentConnectOptions, err error) {
	r := newRecord(ctx, agent, o)
	r.refused(err)
	r.done()
}

// serve serves a request. Errors are those before the WebSocket begins.
func (h *Handler) serve(w http.ResponseWriter, req *http.Request, agent *v1alpha1.TunnelAgent, o *v1alpha1.TunnelAgentConnectOptions, r *record) error {
	client, ok := request.UserFrom(req.Context())
	if !ok {
		return apierrors.NewUnauthorized("the request has no user")
	}
	if err := check(req, o); err != nil {
		return err
	}
	if err := h.admit(req.Context(), client, agent.Name); err != nil {
		return err
	}
	leave, err := h.enter(client.GetName())
	if err != nil {
		return err
	}
	defer leave()
	parent := traceparent.Parse(req.Header.Get(traceparent.Header))
	dest, err := h.dial(traceparent.With(req.Context(), parent), client, agent, o, r)
	if err != nil {
		return err
	}
	upgrader := websocket.Upgrader{Subprotocols: []string{wsconn.Protocol}, WriteBufferPool: &writeBuffers, WriteBufferSize: bufferSize, HandshakeTimeout: h.cfg.DialTimeout}
	ws, err := upgrader.Upgrade(w, req, nil)
	if err != nil {
		abort(dest)
		r.result, r.err = resultAborted, err // the upgrader has answered
		return nil
	}
	r.opened()
	h.carry(wsconn.New(ws), dest, r)
	return nil
}

// maxHost is the length of the longest DNS name.
const maxHost = 253

// check refuses requests that are none for a connection.
func check(req *http.Request, o *v1alpha1.TunnelAgentConnectOptions) error {
	if o.Host == "" || o.Port < 1 || o.Port > 65535 {
		return apierrors.NewBadRequest("the parameters host and port must name a destination: ?host=HOST&port=PORT")
	}
	if n := len(strings.TrimSuffix(o.Host, ".")); n > maxHost {
		return apierrors.NewBadRequest(fmt.Sprintf("the parameter host has %d bytes: no name has more than %d", n, maxHost))
	}
	if !websocket.IsWebSocketUpgrade(req) {
		return apierrors.NewBadRequest("this is no WebSocket request: use \"fairlead socks5 --via api\", or another client of the protocol " + wsconn.Protocol)
	}
	if !slices.Contains(websocket.Subprotocols(req), wsconn.Protocol) {
		return apierrors.NewBadRequest("the WebSocket request does not offer the protocol " + wsconn.Protocol + ": use a client of this protocol")
	}
	return checkUpgrade(req)
}

// checkUpgrade refuses what the upgrader would refuse, before anyone is asked or dialed.
func checkUpgrade(req *http.Request) error {
	if !slices.Contains(req.Header.Values("Sec-Websocket-Version"), "13") {
		return apierrors.NewBadRequest("the WebSocket request does not have version 13: use a client of RFC 6455")
	}
	if key, err := base64.StdEncoding.DecodeString(req.Header.Get("Sec-Websocket-Key")); err != nil || len(key) != 16 {
		return apierrors.NewBadRequest("the WebSocket request has no Sec-WebSocket-Key of 16 bytes: use a client of RFC 6455")
	}
	if origin := req.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || !strings.EqualFold(u.Host, req.Host) {
			return apierrors.NewBadRequest("the WebSocket request comes from a page of another host: connections are not for browsers")
		}
	}
	return nil
}

// admit asks for the right to the subresource. Requests that are asked about have places as connections have, so that
// clients without rights take neither those of connections nor more than these of the API server.
func (h *Handler) admit(ctx context.Context, client user.Info, name string) error {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.DialTimeout)
	defer cancel()
	h.mu.Lock()
	err := h.checks.take(client.GetName())
	h.mu.Unlock()
	if err != nil {
		return err
	}
	defer func() {
		h.mu.Lock()
		h.checks.give(client.GetName())
		h.mu.Unlock()
	}()
	return h.mayCreate(ctx, client, name)
}

// mayCreate demands the verb create: a WebSocket request is a GET, and the right to read must not open connections.
// kube-apiserver does the same for exec, attach and portforward.
func (h *Handler) mayCreate(ctx context.Context, client user.Info, name string) error {
	a := authorizer.AttributesRecord{
		User: client, Verb: "create", APIGroup: v1alpha1.GroupName, APIVersion: v1alpha1.SchemeGroupVersion.Version,
		Resource: "tunnelagents", Subresource: v1alpha1.SubresourceConnect, Name: name, ResourceRequest: true,
	}
	decision, reason, err := h.cfg.Create.Authorize(ctx, a)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return gateway.Errorf(gateway.ReasonPathDown, "check the connection to the API server", "ask whether %q may create tunnelagents/%s: %w", client.GetName(), v1alpha1.SubresourceConnect, err)
	}
	text := fmt.Sprintf("user %q needs the verb create on tunnelagents/%s", client.GetName(), v1alpha1.SubresourceConnect)
	if reason != "" {
		text += ": " + reason
	}
	return apierrors.NewForbidden(v1alpha1.Resource("tunnelagents/"+v1alpha1.SubresourceConnect), name, errors.New(text))
}

// dial finds the destination, asks whether the user may connect to it, and connects.
func (h *Handler) dial(ctx context.Context, client user.Info, agent *v1alpha1.TunnelAgent, o *v1alpha1.TunnelAgentConnectOptions, r *record) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.DialTimeout)
	defer cancel()
	d, err := h.find(ctx, client, o, r)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	c, err := h.cfg.Dial(ctx, agent, d.Addr.String())
	if err != nil {
		return nil, dialError(ctx, d, agent, err)
	}
	dialSeconds.WithLabelValues(string(d.Kind)).Observe(time.Since(began).Seconds())
	return c, nil
}

// enter takes a place for a connection, which leave gives back.
func (h *Handler) enter(client string) (leave func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return nil, gateway.Errorf(gateway.ReasonPathDown, "try again", "the server stops")
	}
	if err := h.limits.take(client); err != nil {
		return nil, err
	}
	h.open.Add(1)
	openConnections.Inc()
	return func() {
		h.mu.Lock()
		h.limits.give(client)
		h.mu.Unlock()
		openConnections.Dec()
		h.open.Done()
	}, nil
}

// carry copies bytes until the connection ends.
func (h *Handler) carry(c *wsconn.Conn, dest net.Conn, r *record) {
	h.mu.Lock()
	ending := h.ending
	h.streams[c] = struct{}{}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.streams, c)
		h.mu.Unlock()
	}()
	if ending {
		c.Abort("the server stops")
	}
	over := make(chan struct{})
	defer close(over)
	go h.keep(c, over)
	go h.endIdle(c, over)
	relay(c, dest, r)
}

// keep sends control frames until the connection ends.
func (h *Handler) keep(c *wsconn.Conn, over <-chan struct{}) {
	tick := time.NewTicker(h.cfg.PingInterval)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		if c.Ping() != nil {
			return
		}
	}
}

// endIdle resets the connection when it has been idle for too long. It waits for no frame to leave, as keep does: a client
// that reads nothing is idle, too.
func (h *Handler) endIdle(c *wsconn.Conn, over <-chan struct{}) {
	limit := h.cfg.IdleTimeout
	if limit == 0 {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case <-over:
			return
		case <-timer.C:
		}
		left := limit - time.Since(c.Moved())
		if left <= 0 {
			c.Abort(fmt.Sprintf("no bytes for %v", limit))
			return
		}
		timer.Reset(left)
	}
}

// Drain refuses new connections, and waits for those that are open. It resets them when ctx ends.
func (h *Handler) Drain(ctx context.Context) {
	h.mu.Lock()
	h.closing = true
	h.mu.Unlock()
	done := make(chan struct{})
	go func() {
		h.open.Wait()
		close(done)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	h.mu.Lock()
	h.ending = true
	for c := range h.streams {
		go c.Abort("the server stops")
	}
	h.mu.Unlock()
	select {
	case <-done:
	case <-time.After(lastGrace):
	}
}

// lastGrace is how long connections may take to end after they were reset.
const lastGrace = 5 * time.Second
