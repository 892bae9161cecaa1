package kube

import (
	"context"
	"net/url"
	"sync"
	"time"
)

// Nodes knows the addresses of nodes.
type Nodes struct {
	Client *Client
	// Keep is for how long an answer is used again.
	Keep time.Duration

	mu   sync.Mutex
	seen map[string]seenNode
}

type seenNode struct {
	at        time.Time
	addresses []string
}

// Addresses returns the names and addresses in a Node's status.
func (n *Nodes) Addresses(ctx context.Context, name string) ([]string, error) {
	n.mu.Lock()
	known, ok := n.seen[name]
	n.mu.Unlock()
	if ok && time.Since(known.at) < n.Keep {
		return known.addresses, nil
	}
	var node struct {
		Status struct {
			Addresses []struct {
				Address string `json:"address"`
			} `json:"addresses"`
		} `json:"status"`
	}
	if err := n.Client.do(ctx, "GET", "/api/v1/nodes/"+url.PathEscape(name), nil, &node); err != nil {
		return nil, err
	}
	addresses := []string{}
	for _, a := range node.Status.Addresses {
		addresses = append(addresses, a.Address)
	}
	n.remember(name, addresses)
	return addresses, nil
}

func (n *Nodes) remember(name string, addresses []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if n.seen == nil {
		n.seen = map[string]seenNode{}
	}
	for k, v := range n.seen {
		if now.Sub(v.at) >= n.Keep {
			delete(n.seen, k)
		}
	}
	n.seen[name] = seenNode{now, addresses}
}
