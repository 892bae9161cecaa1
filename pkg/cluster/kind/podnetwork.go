package kind

import (
	"encoding/json"
	"fmt"
	"strings"
)

// # The Pod network of nodes whose image brings none
//
// Every node has a fixed part of the Pod subnet, decided before it exists, so that
// its network works from the kubelet's first second and no controller is waited
// for. The controller manager allocates none; Up writes the part into the Node's
// spec.podCIDR, where everybody else looks for it. In the node a unit keeps routes
// to the other nodes' parts (node/network.sh): it asks the container runtime's DNS
// for their addresses, again and again, because a restarted container may have
// another one.
//
// A new node lets Pods in, and is Ready, as soon as the Service of the API server
// answers there, which kube-proxy brings about. Programs in Pods that start before
// cannot reach the API server or the cluster's DNS, and most of them, CoreDNS first,
// then wait for seconds before they try again.

// conflist is a CNI network configuration list, as far as it is needed.
type conflist struct {
	CNIVersion string           `json:"cniVersion"`
	Name       string           `json:"name"`
	Plugins    []map[string]any `json:"plugins"`
}

// conflistPath is where the CNI configuration waits for Services to work; then
// node/network.sh moves it to where containerd finds it.
const conflistPath = "/kind/fairlead-pod-network.conflist"

// podNetwork renders a node's CNI configuration: a pair of interfaces and routes
// for every Pod, addresses from the node's range, and host ports.
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

// networkFile tells node/network.sh the Pod subnet, the API server's Service, where
// the CNI configuration waits, the node's own part of the subnet, and the parts of
// its peers by name.
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
