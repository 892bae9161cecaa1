// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/internal/httpconnect"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// ErrNoLink means that no server has a link to an agent.
var ErrNoLink = errors.New("no konnectivity-server has a link to the agent")

// connector opens connections. *state.Client is one.
type connector interface {
	Connect(ctx context.Context, address string, agent *state.Agent) (net.Conn, error)
}

// ErrSilent means that a server has answered nothing while it was asked for a connection.
var ErrSilent = errors.New("the konnectivity-server does not answer")

// candidate is a server that may have a link to an agent.
type candidate struct {
	connector
	id, address string
	rank        int // lower ones are asked first
}

// Connect opens a connection to an address through an agent, at one of the servers that have a link to it. It tries
// another server if the link or the server is gone, or if the server answers nothing in its share of the time. A server
// that does answer waits for the destination, and may take all of the time.
func (c *Collector) Connect(ctx context.Context, a *v1alpha1.TunnelAgent, address string) (net.Conn, error) {
	to := &state.Agent{ID: a.Status.AgentID, Owner: a.Status.NodeName}
	failed := ErrNoLink
	servers := c.serversOf(a)
	for i, s := range servers {
		nc, err := c.connectAt(ctx, s, address, to, len(servers)-i)
		if err == nil {
			return nc, nil
		}
		if ctx.Err() != nil || !elsewhere(err) {
			return nil, err
		}
		if !noLink(err) || errors.Is(failed, ErrNoLink) {
			failed = err
		}
	}
	return nil, failed
}

// connectAt tries one of several servers that are left.
func (c *Collector) connectAt(ctx context.Context, s candidate, address string, agent *state.Agent, left int) (net.Conn, error) {
	began := c.cfg.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if end, ok := ctx.Deadline(); ok && left > 1 {
		go c.endSilent(ctx, cancel, s.address, began, time.Until(end)/time.Duration(left))
	}
	nc, err := s.Connect(ctx, address, agent)
	if err != nil && (errors.Is(context.Cause(ctx), ErrSilent) || errors.Is(ctx.Err(), context.DeadlineExceeded) && c.silentSince(s.address, began)) {
		return nil, fmt.Errorf("%w: %s", ErrSilent, s.id)
	}
	return nc, err
}

// endSilent ends a try after its share of the time, when the server has answered nothing since it began.
func (c *Collector) endSilent(ctx context.Context, cancel context.CancelCauseFunc, address string, began time.Time, share time.Duration) {
	wait := time.NewTimer(share)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		if c.silentSince(address, began) {
			cancel(ErrSilent)
			return
		}
		wait.Reset(c.cfg.Interval)
	}
}

// silentSince reports whether a server has answered nothing since a time, though it was asked for its state. A server that
// answers waits for the destination.
func (c *Collector) silentSince(address string, began time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.seen[address]
	return c.cfg.Now().Sub(began) >= c.cfg.Interval+c.cfg.Timeout && (s == nil || !s.at.After(began))
}

// serversOf returns the servers with a link to an agent, in random order, those whose links take dials first, and those
// that have stopped to show their state last.
func (c *Collector) serversOf(a *v1alpha1.TunnelAgent) (out []candidate) {
	now := c.cfg.Now()
	c.mu.Lock()
	byID, _ := c.latest()
	c.mu.Unlock()
	for _, of := range a.Status.Servers {
		known := byID[of.ServerID]
		if known == nil {
			continue
		}
		asker, ok := known.asker.(connector)
		if !ok {
			continue
		}
		s := candidate{connector: asker, id: of.ServerID, address: known.address}
		switch {
		case !c.fresh(known, now):
			s.rank = 3
		case of.Silent:
			s.rank = 2
		case of.Draining:
			s.rank = 1
		}
		out = append(out, s)
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	slices.SortStableFunc(out, func(a, b candidate) int { return cmp.Compare(a.rank, b.rank) })
	return out
}

// elsewhere reports whether another server may succeed after a failure: if the failure is that of the server or its link,
// and not that of the destination.
func elsewhere(err error) bool {
	var refused *httpconnect.RefusedError
	if !errors.As(err, &refused) || noLink(err) {
		return true
	}
	// 503 is a limit, or that the server cannot review the token now.
	return refused.Code == http.StatusUnauthorized || refused.Code == http.StatusServiceUnavailable
}

func noLink(err error) bool {
	var refused *httpconnect.RefusedError
	return errors.As(err, &refused) && (strings.Contains(refused.Status, " no_agent: ") || strings.Contains(refused.Status, " agent_gone: "))
}
