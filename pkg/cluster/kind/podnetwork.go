// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"encoding/json"
	"fmt"
	"strings"
)

// # The Pod network of nodes whose image contains none
//
// Every node has a fixed part of the Pod subnet, decided before the node exists. So
// its network works as soon as the kubelet starts, without waiting for a controller.
// kube-controller-manager does not allocate node CIDRs. Up writes the part into the
// Node's spec.podCIDR, where other programs expect it. A systemd unit in the node
// maintains routes to the other nodes' parts (node/network.sh). It queries the
// container runtime's DNS for their addresses repeatedly, because a restarted
// container may have another address.
//
// A new node becomes Ready, and accepts Pods, as soon as the API server's Service
// answers there, which requires kube-proxy. Programs in Pods that started earlier
// could not reach the API server or the cluster's DNS. Most of them, CoreDNS first,
// would then wait for seconds before they retry.

// conflist is a CNI network configuration list, with the fields needed here.
type conflist struct {
	CNIVersion string           `json:"cniVersion"`
	Name       string           `json:"name"`
	Plugins    []map[string]any `json:"plugins"`
}

// conflistPath is where the CNI configuration is kept until Services work; then
// node/network.sh moves it to where containerd finds it.
const conflistPath = "/kind/fairlead-pod-network.conflist"

// podNetwork renders a node's CNI configuration: a pair of interfaces and routes for
// every Pod, addresses from the node's range, and host ports.
func podNetwork(n node) ([]byte, error) {
	data, err := json.MarshalIndent(conflist{
		CNIVersion: "0.4.0", Name: "fairlead",
		Plugins: []map[string]any{
			{
				"type": "ptp", "ipMasq": false,
				"ipam": map[string]any{
					"type": "host-local", "dataDir": "/run/cni-ipam-state",
					"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
					"ranges": []any{[]any{map[string]any{"subnet": n.podCIDR.String()}}},
				},
			},
			{"type": "portmap", "capabilities": map[string]any{"portMappings": true}},
		},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the Pod network of %s: %w", n.name, err)
	}
	return data, nil
}

// networkFile is the input of node/network.sh: the Pod subnet, the API server's
// Service, the path of the CNI configuration, the node's own part of the subnet, and
// the parts of its peers by name.
func (p *plan) networkFile(self node) []byte {
	var out strings.Builder
	fmt.Fprintf(&out, "subnet %s\nservice %s\nconflist %s\nown %s\n", podSubnet, apiService(), conflistPath, self.podCIDR)
	for _, n := range p.nodes() {
		if n.name != self.name {
			fmt.Fprintf(&out, "peer %s %s\n", n.podCIDR, n.name)
		}
	}
	return []byte(out.String())
}
