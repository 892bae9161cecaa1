// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/identifiers"
)

// Nodes knows the addresses of nodes.
type Nodes struct {
	Client *Client
	// Keep is for how long an answer is used again.
	Keep time.Duration

	mu   sync.Mutex
	seen map[string]seenNode

	listing sync.Mutex // one list at a time
	byHost  map[string][]string
	pods    map[netip.Prefix]string // ranges of Pods, and a node that has each
	listed  time.Time
}

type seenNode struct {
	at        time.Time
	addresses []string
}

// nodeObject is what is read of a Node.
type nodeObject struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		PodCIDRs []string `json:"podCIDRs"`
	} `json:"spec"`
	Status struct {
		Addresses []struct {
			Address string `json:"address"`
		} `json:"addresses"`
	} `json:"status"`
}

// Addresses returns the names and addresses in a Node's status.
func (n *Nodes) Addresses(ctx context.Context, name string) ([]string, error) {
	n.mu.Lock()
	known, ok := n.seen[name]
	n.mu.Unlock()
	if ok && time.Since(known.at) < n.Keep {
		return known.addresses, nil
	}
	var node nodeObject
	err := n.Client.do(ctx, "GET", "/api/v1/nodes/"+url.PathEscape(name), nil, &node)
	if code, _, _ := CodeOf(err); code == http.StatusNotFound { // not kept: a node may come
		return nil, nil
	}
	if err != nil {
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

// With returns the names of the Nodes that are called like the host or have it in their
// status. The host is in the form in which identifiers are compared.
func (n *Nodes) With(ctx context.Context, host string) ([]string, error) {
	n.listing.Lock() // for as long as the lists of those before take, each within its own time
	defer n.listing.Unlock()
	if err := n.refresh(ctx); err != nil {
		return nil, err
	}
	return n.byHost[host], nil
}

// PodRange returns the range of Pods that has the address, and the Node whose range it is.
// Without such a range, node is empty.
func (n *Nodes) PodRange(ctx context.Context, address netip.Addr) (podCIDR netip.Prefix, node string, err error) {
	n.listing.Lock()
	defer n.listing.Unlock()
	if err := n.refresh(ctx); err != nil {
		return netip.Prefix{}, "", err
	}
	for bits := range address.BitLen() + 1 {
		podCIDR = netip.PrefixFrom(address, bits).Masked()
		if node := n.pods[podCIDR]; node != "" {
			return podCIDR, node, nil
		}
	}
	return netip.Prefix{}, "", nil
}

// refresh lists the Nodes if the last list is too old. The caller holds n.listing.
func (n *Nodes) refresh(ctx context.Context) error {
	if n.byHost != nil && time.Since(n.listed) < n.Keep {
		return nil
	}
	began := time.Now()
	byHost, pods, err := n.list(ctx)
	if err != nil {
		return err
	}
	n.byHost, n.pods, n.listed = byHost, pods, began
	return nil
}

// nodePage is how many Nodes are asked for at a time: each may take 50 KiB, for its images.
const nodePage = 250

// list asks for all Nodes, and returns their names by what they are called or have, and by
// the ranges of their Pods.
func (n *Nodes) list(ctx context.Context) (byHost map[string][]string, pods map[netip.Prefix]string, err error) {
	byHost, pods = map[string][]string{}, map[netip.Prefix]string{}
	add := func(host, node string) {
		host = identifiers.Canonical(host)
		if !slices.Contains(byHost[host], node) {
			byHost[host] = append(byHost[host], node)
		}
	}
	query := url.Values{"limit": {fmt.Sprint(nodePage)}}
	for {
		var page struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []nodeObject `json:"items"`
		}
		if err := n.Client.do(ctx, "GET", "/api/v1/nodes?"+query.Encode(), nil, &page); err != nil {
			return nil, nil, fmt.Errorf("listing Nodes: %w: grant system:konnectivity-server the verb list on nodes, as the bundle does, if it is forbidden", err)
		}
		for i := range page.Items {
			item := &page.Items[i]
			add(item.Metadata.Name, item.Metadata.Name)
			for _, a := range item.Status.Addresses {
				add(a.Address, item.Metadata.Name)
			}
			for _, c := range item.Spec.PodCIDRs {
				if p, err := netip.ParsePrefix(c); err == nil { // the API server accepts no other value
					pods[p.Masked()] = item.Metadata.Name
				}
			}
		}
		if page.Metadata.Continue == "" {
			return byHost, pods, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}
