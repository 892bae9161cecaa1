// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"fmt"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// Down implements cluster.Provider: it removes containers, files and context.
func (p *Provider) Down(ctx context.Context, o cluster.DownOptions) error {
	home, err := cluster.NewHome(p.root, o.Name)
	if err != nil {
		return err
	}
	return (&plan{Home: home}).lifecycle().Down(ctx, o)
}

// Left implements cluster.Driver.
func (p *plan) Left() (bool, error) {
	has, err := p.Home.Provider()
	return has == cluster.Kind, err
}

// Remove implements cluster.Driver.
func (p *plan) Remove(ctx context.Context) error {
	if p.library != nil { // the containers that Create made
		return p.remove(ctx, p.library)
	}
	return removeContainers(ctx, p)
}

// removeContainers removes the cluster, if the container runtime answers.
func removeContainers(ctx context.Context, p *plan) error {
	rt, err := p.runtime(ctx)
	if err != nil {
		return err
	}
	if err := rt.ping(ctx); err != nil {
		return fmt.Errorf("the containers of %s cannot be removed: %w", kindName(p.Name), err)
	}
	return p.removeAll(ctx, rt)
}

// runtime returns the container runtime that the cluster was created with, or
// the one that is found if the state does not name one.
func (p *plan) runtime(ctx context.Context) (*runtime, error) {
	if p.state.Runtime != "" {
		return &runtime{command: p.state.Runtime}, nil
	}
	return findRuntime(ctx)
}
