package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Claims says which identifiers agents may send. Identifiers decide which
// connections an agent gets, so an agent that claims another node's can read what
// is meant for that.
type Claims struct {
	// By says what identifiers are held against: "any" or empty accepts all, as
	// the reference server does; "node" wants hosts to be the node that the
	// token is bound to, and no addresses; "certificate" wants hosts and
	// addresses to be names in the agent's certificate.
	By string
	// DefaultRoute lists the nodes, or common names of certificates, that may
	// claim the default route when By is not "any".
	DefaultRoute []string
}

// ErrClaim says that an agent claims what it may not.
var ErrClaim = errors.New("agent may not claim this")

// check judges what an agent claims. node is what its token is bound to.
func (c *Claims) check(state *tls.ConnectionState, node string, ids *Identifiers) error {
	name := node
	switch c.By {
	case "", "any":
		return nil
	case "node":
		if err := c.checkNode(node, ids); err != nil {
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
	if ids.DefaultRoute && !slices.Contains(c.DefaultRoute, name) {
		return fmt.Errorf("%w: default route", ErrClaim)
	}
	return nil
}

func (c *Claims) checkNode(node string, ids *Identifiers) error {
	if node == "" && (len(ids.hosts()) > 0 || ids.DefaultRoute) {
		return fmt.Errorf("%w: its token is bound to no node", ErrClaim)
	}
	for _, h := range ids.hosts() {
		if !strings.EqualFold(h, node) {
			return fmt.Errorf("%w: %q is not its node %q", ErrClaim, h, node)
		}
	}
	return nil
}
