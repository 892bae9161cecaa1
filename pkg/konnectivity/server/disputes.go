// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
)

// With --agent-claims=node a host belongs to one node. A kubelet may write any address into
// its own Node, though, so that two nodes can have one. Nothing tells which of them lies,
// the older one not either: it may have written the address before the other node came. So
// strategy destHost gives such a host to neither, and the next strategy decides. The same
// holds for an address of Pods or Services, which no node has.

// recheckDefault is how often claims are compared with the Nodes again. A Node that comes
// later may have an address that an agent claims already.
const recheckDefault = 5 * time.Minute

// dispute is why agents that claim a host do not get it, or empty.
func (g *group) dispute() string {
	var first *Backend
	for _, b := range g.links {
		if !b.ids.exclusive {
			continue
		}
		if why := b.ids.contested[g.key]; why != "" {
			return fmt.Sprintf("agents of node %q claim %q, %s", b.ids.owner, g.key, why)
		}
		if first == nil {
			first = b
		}
		if b.ids.owner != first.ids.owner {
			return fmt.Sprintf("agents of nodes %q and %q both claim %q", first.ids.owner, b.ids.owner, g.key)
		}
	}
	return ""
}

// settle looks again whether a host is disputed, and returns why if it was not before.
func (g *group) settle() string {
	why, before := g.dispute(), g.disputed
	g.disputed = why != ""
	if before {
		return ""
	}
	return why
}

// recontest replaces what is contested of an agent's claims, and returns what became
// disputed by it.
func (r *registry) recontest(b *Backend, contested map[string]string) (disputes []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.all[b]; !ok {
		return nil
	}
	b.ids.contested = contested
	for _, p := range r.pools {
		if p.strategy != StrategyDestHost {
			continue
		}
		for _, key := range p.keys(b) {
			if why := p.byKey[key].settle(); why != "" {
				disputes = append(disputes, why)
			}
		}
	}
	return disputes
}

// disputed logs and counts hosts that more than one node claims, or that are no node's. A host may be disputed
// again and again: its name stands for the peer in the log.
func (s *Server) disputed(disputes []string) {
	for _, why := range disputes {
		s.m.disputed.Inc()
		s.throttled.Add(logthrottle.Event{Level: 1, Peer: "disputed host", Message: "Strategy destHost skips a host by --agent-claims=node: correct the addresses in the status of the named Nodes", Why: []any{"reason", why}})
	}
}

// recheckClaims compares the claims of connected agents with the Nodes from time to time.
func (s *Server) recheckClaims() {
	defer s.wg.Done()
	tick := time.NewTicker(s.cfg.Claims.Recheck)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		for _, b := range s.reg.list() {
			if !b.ids.exclusive {
				continue
			}
			contested, err := s.cfg.Claims.contested(s.ctx, b.ids.owner, &b.ids)
			if err != nil {
				s.throttled.Add(logthrottle.Event{Level: 1, Peer: "recheck", Message: "Cannot compare the identifiers of agents with Nodes for --agent-claims=node", Err: err})
				break
			}
			s.disputed(s.reg.recontest(b, contested))
		}
	}
}

// contested returns which of a connected agent's hosts are not, or not only, of its node,
// and why.
func (c *Claims) contested(ctx context.Context, node string, ids *Identifiers) (map[string]string, error) {
	var out map[string]string
	for _, h := range ids.hosts() {
		why, err := c.contest(ctx, node, h)
		if errors.Is(err, ErrClaim) {
			why, err = "which it may not claim any more", nil
		}
		if err != nil {
			return nil, err
		}
		if why != "" {
			if out == nil {
				out = map[string]string{}
			}
			out[h] = why
		}
	}
	return out, nil
}

// contest returns why a host is contested that a node may claim: other nodes have it, too,
// or it belongs to Pods or Services. The error is ErrClaim if it may not.
func (c *Claims) contest(ctx context.Context, node, host string) (why string, err error) {
	if strings.EqualFold(host, node) {
		return "", nil
	}
	if err := c.ownAddress(ctx, node, host); err != nil {
		return "", err
	}
	if why, err := c.notOfNodes(ctx, host); why != "" || err != nil || c.NodesWith == nil {
		return why, err
	}
	names, err := c.NodesWith(ctx, host)
	if err != nil {
		return "", fmt.Errorf("finding the nodes that have %q: %w", host, err)
	}
	var others []string
	for _, name := range names {
		switch {
		case name == node:
		case strings.EqualFold(name, host):
			return "", fmt.Errorf("%w: %q is the name of another node than its own, %q", ErrClaim, host, node)
		default:
			others = append(others, strconv.Quote(name))
		}
	}
	if len(others) == 0 {
		return "", nil
	}
	if more := len(others) - maxNamed; more > 0 {
		others = append(others[:maxNamed], fmt.Sprintf("%d more", more))
	}
	return "which is also in the status of " + strings.Join(others, ", "), nil
}

// notOfNodes returns why a host is no node's, whatever is in the status of a Node, or empty.
func (c *Claims) notOfNodes(ctx context.Context, host string) (why string, err error) {
	address, err := netip.ParseAddr(host)
	if err != nil {
		if name := strings.ToLower(strings.TrimSuffix(host, ".")); strings.HasSuffix(name, ".svc") || strings.HasSuffix(name, ".svc.cluster.local") {
			return "which is the name of a Service", nil
		}
		return "", nil
	}
	address = address.WithZone("").Unmap()
	for _, p := range c.NonNodeCIDRs {
		if p.Contains(address) {
			return fmt.Sprintf("which is in %v of --non-node-cidrs", p), nil
		}
	}
	if c.PodRange == nil {
		return "", nil
	}
	podCIDR, owner, err := c.PodRange(ctx, address)
	if err != nil {
		return "", fmt.Errorf("finding the range of Pods that has %q: %w", host, err)
	}
	if owner == "" {
		return "", nil
	}
	return fmt.Sprintf("which is in spec.podCIDRs (%v) of Node %q", podCIDR, owner), nil
}

// maxNamed bounds how many of a kind a log line names.
const maxNamed = 3
