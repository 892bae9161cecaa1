// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/gateway/internal/clustertest"
)

// requests: connections that begin together ask the API server once, not each for itself, for a
// Service, a node and addresses.
func requests(t *testing.T, c *clustertest.Cluster) {
	const connections = 100
	for _, tt := range []struct {
		host string
		port uint16
		most int64
	}{
		{"leaving", 80, 3},       // the Service, its EndpointSlices, the Pod
		{"node-1", 10250, 2},     // no Service of that name, the nodes
		{"198.51.100.2", 443, 4}, // Services by either address, nodes, Pods
		{"10.1.0.1", 8080, 4},
		{"2001:db8::99", 443, 5}, // Pods by either address
	} {
		client, n := c.Counted()
		r := New(client, Options{Namespace: "shop"})
		var all sync.WaitGroup
		for range connections {
			all.Go(func() {
				if _, err := r.Resolve(t.Context(), tt.host, tt.port); err != nil {
					t.Errorf("%s: %v", tt.host, err)
				}
			})
		}
		all.Wait()
		t.Logf("%d connections to %s cost %d requests", connections, tt.host, n.Load())
		if n.Load() > tt.most {
			t.Errorf("%d connections to %s cost %d requests, want %d at most", connections, tt.host, n.Load(), tt.most)
		}
	}
}
