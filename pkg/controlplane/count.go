// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
)

// checkCount fails if the bundle does not tell agents about every control plane
// node: they would connect to only some of the servers.
func (n *node) checkCount(ctx context.Context) error {
	if n.client == nil {
		return nil
	}
	nodes, err := n.api().APIServers(ctx)
	if err != nil {
		n.opts.Notef("could not look for other control plane nodes: %v", err)
		return nil
	}
	if err := konnectivity.CheckCount(n.bundle, nodes.Len()); err != nil {
		return n.opts.ignorable(CheckServerCount, fmt.Errorf("%w (%v)", err, sets.List(nodes)))
	}
	return nil
}
