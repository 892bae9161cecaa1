package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Claims says which identifiers agents may send. Identifiers decide which
// connections an agent gets, so an agent that claims another node's can read what
// is meant for that.
type Claims struct {
	// By says what identifiers are held against: "any" or empty accepts all, as
	// the reference server does; "node" wants hosts and addresses to be those of
	// the node that the token is bound to; "certificate" wants them to be names
	// in the agent's certificate.
	By string
	// DefaultRoute lists the nodes, or common names of certificates, that may
	// claim the default route when By is not "any"; "*" is each of them.
	DefaultRoute []string
	// NodeAddresses tells the addresses of a node; nil knows none.
	NodeAddresses func(ctx context.Context, node string) ([]string, error)
}

// ErrClaim says that an agent claims what it may not.
var ErrClaim = errors.New("agent may not claim this")

// check judges what an agent claims. node is what its token is bound to.
func (c *Claims) check(ctx context.Context, state *tls.ConnectionState, node string, ids *Identifiers) error {
	name := node
	switch c.By {
	case "", "any":
		return nil
	case "node":
		if err := c.checkNode(ctx, node, ids); err != nil {
			return err
		}
	default:
		if len(state.PeerCertificates) == 0 {
			return fmt.Errorf("%w: no certificate", ErrClaim)
		}
		cert := state.PeerCertificates[0]
		name = cert.Subject.CommonName
		for _, h := range ids.hosts() {
			if h != name && cert.VerifyHostname(h) != nil {
				return fmt.Errorf("%w: %q is not in its certificate", ErrClaim, h)
			}
		}
	}
	ids.owner, ids.checked = name, true
	if ids.DefaultRoute && !slices.Contains(c.DefaultRoute, name) && !slices.Contains(c.DefaultRoute, "*") {
		return fmt.Errorf("%w: default route", ErrClaim)
	}
	return nil
}

func (c *Claims) checkNode(ctx context.Context, node string, ids *Identifiers) error {
	if node == "" && (len(ids.hosts()) > 0 || ids.DefaultRoute) {
		return fmt.Errorf("%w: the API server names no node that its token is bound to", ErrClaim)
	}
	var own []string
	for _, h := range ids.hosts() {
		if strings.EqualFold(h, node) {
			continue
		}
		if own == nil && c.NodeAddresses != nil {
			var err error
			if own, err = c.NodeAddresses(ctx, node); err != nil {
				return fmt.Errorf("addresses of node %q: %w", node, err)
			}
		}
		if !slices.ContainsFunc(own, func(a string) bool { return sameHost(a, h) }) {
			return fmt.Errorf("%w: %q is neither the name nor an address of its node %q", ErrClaim, h, node)
		}
	}
	return nil
}

// sameHost compares names, and addresses in whatever form they are written.
func sameHost(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if errX == nil && errY == nil {
		return x.Unmap() == y.Unmap()
	}
	return strings.EqualFold(a, b)
}
