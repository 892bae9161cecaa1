// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"

	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// PlainConfig returns the configuration for a cluster of the same size without
// anything of fairlead's, for `kind create cluster --config`: the baseline that
// bring-up is compared with. It contains only what this machine needs.
func PlainConfig(ctx context.Context, image string, controlPlanes, workers int) ([]byte, error) {
	rt, err := findRuntime(ctx)
	if err != nil {
		return nil, err
	}
	f, err := rt.look(ctx, image)
	if err != nil {
		return nil, err
	}
	p := &plan{
		Home: cluster.Home{Name: "plain"}, facts: f, bundle: (&v1alpha1.Bundle{Konnectivity: v1alpha1.Konnectivity{Enabled: ptr.To(false)}}).Defaulted(),
		state: State{ControlPlanes: controlPlanes, Workers: workers, Image: image},
	}
	c, err := p.config()
	if err != nil {
		return nil, err
	}
	if c.KubeadmConfigPatches, err = p.machinePatches(); err != nil {
		return nil, err
	}
	c.Name, c.Networking.APIServerPort = "", 0
	for i := range c.Nodes {
		c.Nodes[i].ExtraMounts = nil
	}
	return encode(c)
}
