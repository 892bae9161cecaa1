// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/identifiers"
)

// Claims says which identifiers agents may send. Identifiers decide which
// connections an agent gets, so an agent that claims another node's can read what
// is meant for that.
type Claims struct {
	// By says what identifiers are held against: "any" or empty accepts all, as
	// upstream's server does; "node" wants hosts and addresses to be those of
	// the node that the token is bound to; "certificate" wants them to be names
	// in the agent's certificate.
	By string
	// DefaultRoute lists the nodes, or common names of certificates, that may
	// claim the default route when By is not "any"; "*" is each of them.
	DefaultRoute []string
	// NodeAddresses tells the addresses of a node, none of one that does not exist; nil knows none.
	NodeAddresses func(ctx context.Context, node string) ([]string, error)
	// NodesWith returns the names of the nodes that are called so, or have the address
	// or name, which is in the form in which hosts are compared. nil asks about none.
	NodesWith func(ctx context.Context, host string) ([]string, error)
	// PodRange returns the range of Pods that has an address and the node whose range it is;
	// node is empty if there is none. nil knows no ranges.
	PodRange func(ctx context.Context, address netip.Addr) (podCIDR netip.Prefix, node string, err error)
	// NonNodeCIDRs are ranges that hold no node, such as those of Services.
	NonNodeCIDRs []netip.Prefix
	// Recheck is how often connected agents' hosts are compared with the nodes again.
	// Default 5 min.
	Recheck time.Duration
}

// ErrClaim says that an agent claims what it may not.
var ErrClaim = errors.New("agent may not claim this")

// check judges what an agent claims. node is what its token is bound to.
func (c *Claims) check(ctx context.Context, state *tls.ConnectionState, node string, ids *Identifiers) error {
	name := node
	switch c.By {
	case "", "any":
		ids.owner, ids.owned = node, node != ""
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
			if h != identifiers.Canonical(name) && cert.VerifyHostname(h) != nil {
				return fmt.Errorf("%w: %q is not in its certificate", ErrClaim, h)
			}
		}
	}
	ids.owner, ids.owned = name, true
	if ids.DefaultRoute && !slices.Contains(c.DefaultRoute, name) && !slices.Contains(c.DefaultRoute, "*") {
		return fmt.Errorf("%w: default route", ErrClaim)
	}
	return nil
}

func (c *Claims) checkNode(ctx context.Context, node string, ids *Identifiers) error {
	if node == "" {
		return fmt.Errorf("%w: the API server names no node that its token is bound to: use a token that is bound to a Pod or a Node", ErrClaim)
	}
	ids.exclusive, ids.contested = true, map[string]string{}
	for _, h := range ids.hosts() {
		why, err := c.contest(ctx, node, h)
		if err != nil {
			return err
		}
		if why != "" {
			ids.contested[h] = why
		}
	}
	return nil
}

// ownAddress checks that a node's status has the address or name.
func (c *Claims) ownAddress(ctx context.Context, node, host string) error {
	var own []string
	if c.NodeAddresses != nil {
		var err error
		if own, err = c.NodeAddresses(ctx, node); err != nil {
			return fmt.Errorf("addresses of node %q: %w", node, err)
		}
	}
	if !slices.ContainsFunc(own, func(a string) bool { return identifiers.Canonical(a) == identifiers.Canonical(host) }) {
		return fmt.Errorf("%w: %q is neither the name nor an address of its node %q", ErrClaim, host, node)
	}
	return nil
}
