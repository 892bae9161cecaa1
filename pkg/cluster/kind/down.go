// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// Down implements cluster.Provider: it removes containers, files and context. It
// needs no readable state, so it also removes what a killed command left behind.
func (p *Provider) Down(ctx context.Context, o cluster.DownOptions) error {
	home, err := cluster.NewHome(p.root, o.Name)
	if err != nil {
		return err
	}
	if o.Progress == nil {
		o.Progress = cluster.Silent
	}
	unlock, err := home.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	// Read the state before deleting it. For a cluster without readable state,
	// remove any context that has its name.
	var state State
	server := ""
	if home.ReadState(&state, &state.Record) == nil {
		server = state.serverURL()
	}
	previous := home.PreviousContext()
	has, err := home.Provider()
	if err != nil {
		return err
	}
	found := has == cluster.Kind
	if found {
		err := cluster.Step(o.Progress, "Removing the containers and files of "+kindName(home.Name), func() (string, error) {
			return "", errors.Join(removeContainers(ctx, &plan{Home: home, state: state}), os.RemoveAll(home.FailedLogs()))
		})
		if err != nil {
			return err
		}
	}
	defer home.RemoveTraces()
	hadContext, err := home.RemoveContexts(server, previous, append(state.Kubeconfigs, o.Kubeconfig))
	if err == nil && !found && !hadContext {
		err = fmt.Errorf("%w: %q: nothing to remove", cluster.ErrNotFound, home.Name)
	}
	return err
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
