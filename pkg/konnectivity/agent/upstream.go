// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/upstream"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// connectPath is the gRPC method with which agents connect.
const connectPath = "/AgentService/Connect"

// minUpstreamPing is the least time between pings to an upstream server, which
// cuts off who pings more often.
const minUpstreamPing = 30 * time.Second

// openUpstream connects with upstream's protocol.
func (a *Agent) openUpstream(ctx context.Context, nc *tls.Conn, addr, token string) error {
	c := &client{addr: addr, links: 1, done: make(chan struct{})}
	welcome := make(chan []h2.Field, 1)
	over := make(chan error, 1)
	cfg := a.sessionConfig(addr, welcome) //nolint:contextcheck // ctx bounds connecting; dials outlive it
	cfg.OnClosed = func(err error) { over <- err; _ = nc.Close() }
	c.session = upstream.New(nil, false, cfg)
	c.h2 = h2.NewClient(nc, h2.Config{StreamWindow: 1 << 20, MaxOut: 256 << 10})
	c.session.SetStream(c.h2.Open(a.upstreamHeaders(token), c.session))
	served := make(chan error, 1)
	go func() { served <- c.h2.Serve() }()
	count, err := a.awaitWelcome(ctx, c, welcome, over)
	if err == nil && !a.add(c, count, false) {
		err = heldBy(c.serverID)
	}
	if err != nil {
		c.h2.Close()
		a.cfg.Logger.V(4).Info("The connection to a server ended", "address", addr, "err", <-served)
		return err
	}
	go a.serve(c, func() error {
		err := <-served
		select {
		case why := <-over:
			a.m.streamEnded(why)
		default:
		}
		return err
	})
	go a.keepalive(c)
	return nil
}

// sessionConfig is that of a stream of upstream's protocol; the server's headers go
// to welcome.
func (a *Agent) sessionConfig(addr string, welcome chan<- []h2.Field) upstream.Config {
	welcomed := false
	return upstream.Config{
		ConnBuffer: a.cfg.ConnBuffer, Pause: a.cfg.PauseSlow, Observe: a.m.observe, OnOverflow: a.m.overflows.Inc,
		OnBad: func(err error, first bool) {
			a.m.violations.With("packet").Inc()
			if first {
				a.throttled.Add(logthrottle.Event{Level: 1, Peer: addr, Message: "The server sent a bad packet", Who: []any{"address", addr}, Err: err})
			}
		},
		OnStray: func(t wire.Type, id int64, never bool) {
			a.m.strays.With(t.String()).Inc()
			if never {
				a.m.violations.With("unknown connection").Inc()
				a.throttled.Add(logthrottle.Event{Level: 1, Peer: addr, Message: "The server breaks the protocol", Who: []any{"address", addr},
					Err: fmt.Errorf("%s for connection %d, which it never had", t, id)})
			}
		},
		OnUnknown: func(t wire.Type, first bool) {
			a.m.unknownFrames.Inc()
			if first {
				a.throttled.Add(logthrottle.Event{Level: 1, Peer: addr, Message: "Skipping packets whose type is unknown or needs another message: the server may be newer",
					Who: []any{"address", addr}, Why: []any{"type", t}})
			}
		},
		OnDial: func(st *upstream.Conn, address string) { a.dial(st, address, traceparent.Context{}) },
		OnHeaders: func(f []h2.Field) {
			if welcomed { // these are trailers
				a.m.trailers(f)
				return
			}
			welcomed = true
			welcome <- f
		},
	}
}

// upstreamHeaders introduce the agent.
func (a *Agent) upstreamHeaders(token string) []h2.Field {
	fields := []h2.Field{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: connectPath},
		{Name: ":authority", Value: a.cfg.Address}, {Name: "content-type", Value: "application/grpc"},
		{Name: "user-agent", Value: "fairlead-agent"}, {Name: "te", Value: "trailers"},
		{Name: "agentid", Value: a.cfg.AgentID}, {Name: "agentidentifiers", Value: a.cfg.Identifiers}}
	if token != "" {
		fields = append(fields, h2.Field{Name: "authorization", Value: "Bearer " + token})
	}
	return fields
}

// awaitWelcome waits for the server's headers, which upstream's agent does
// without a limit.
func (a *Agent) awaitWelcome(ctx context.Context, c *client, welcome <-chan []h2.Field, over <-chan error) (int, error) {
	var fields []h2.Field
	select {
	case fields = <-welcome:
	case err := <-over:
		return 0, fmt.Errorf("server ended the stream: %w", err)
	case <-ctx.Done():
		return 0, fmt.Errorf("server did not answer: %w", ctx.Err())
	}
	id, count, err := parseWelcome(fields)
	c.serverID = id
	return count, err
}

// parseWelcome reads a server's ID and how many servers there are.
func parseWelcome(fields []h2.Field) (id string, count int, err error) {
	var ids, counts []string
	for _, f := range fields {
		switch f.Name {
		case "serverid":
			ids = append(ids, f.Value)
		case "servercount":
			counts = append(counts, f.Value)
		case "grpc-message":
			return "", 0, errors.New("server refused the agent: " + f.Value)
		}
	}
	if len(ids) != 1 || len(counts) != 1 {
		return "", 0, fmt.Errorf("server sent %d IDs and %d counts, want one of each", len(ids), len(counts))
	}
	if ids[0] == "" {
		return "", 0, errors.New("server sent an empty ID")
	}
	if count, err = strconv.Atoi(counts[0]); err != nil {
		return "", 0, fmt.Errorf("server count: %w", err)
	}
	if count < 0 {
		return "", 0, fmt.Errorf("server count: %d", count)
	}
	return ids[0], count, nil
}

// keepalive pings an upstream server as seldom as it demands, and gives it up
// when it does not answer within 20 s.
func (a *Agent) keepalive(c *client) {
	every := max(a.cfg.KeepaliveTime, minUpstreamPing)
	tick := time.NewTicker(min(every, 5*time.Second))
	defer tick.Stop()
	for {
		select {
		case <-c.done:
			return
		case now := <-tick.C:
			silent, open := c.h2.Silence(now)
			if open > 20*time.Second {
				a.cfg.Logger.V(1).Info("The server does not answer", "server", c.serverID, "address", c.addr)
				c.h2.Close()
				return
			}
			if silent >= every && open == 0 {
				c.h2.Ping(now)
			}
		}
	}
}
