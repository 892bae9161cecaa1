package harness

import (
	"context"
	"errors"
)

// Firewall drops what control planes send to nodes and Pods by themselves.
type Firewall struct{}

// RaiseFirewall puts the firewall into every control plane node.
func (c *Cluster) RaiseFirewall(context.Context) (*Firewall, error) {
	return nil, errors.New("not written yet")
}
