// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// resume starts an existing cluster, or finds it running.
func (l Layout) resume(ctx context.Context, o upOptions, state State) error {
	pl := &plan{Layout: l, state: state}
	var err error
	if pl.bundle, err = l.StoredBundle(); err != nil {
		return err
	}
	if err := pl.sameAsAsked(o); err != nil {
		return err
	}
	_, err = process.NewClient(l.SupervisorSocket()).Status(ctx)
	switch {
	case err == nil && state.addressHolds():
		err := cluster.Step(o.Progress, fmt.Sprintf("Cluster %s is running already", l.Name), func() (string, error) {
			if err := pl.startStopped(ctx); err != nil {
				return "", err
			}
			quiet := o
			quiet.Progress = cluster.Silent
			return "", pl.followUp(ctx, quiet)
		})
		if err != nil {
			return err
		}
		return pl.addContext(o)
	case err != nil && !errors.Is(err, process.ErrNotRunning):
		return fmt.Errorf("%w: if it stays like that, remove the cluster with \"fairlead down --name %s\"", err, l.Name)
	}
	// The cluster is stopped, or runs at an address that the machine no longer
	// has or that is no longer the best.
	if err := pl.findPrograms(ctx, o); err != nil {
		return err
	}
	if err := l.stop(ctx); err != nil {
		return err
	}
	if err := awaitPorts(ctx, state.Ports, pl.state.HostIP); err != nil {
		return err
	}
	if err := pl.makeDirs(); err != nil {
		return err
	}
	if err := pl.writeState(pl.state); err != nil {
		return err
	}
	if err := pl.bringUp(ctx, o); err != nil {
		return pl.stopAfter(ctx, err)
	}
	return pl.addContext(o)
}

// startStopped starts the programs that a killed check has left stopped.
func (p *plan) startStopped(ctx context.Context) error {
	client := process.NewClient(p.SupervisorSocket())
	stopped, err := stoppedPrograms(ctx, client)
	for _, name := range stopped {
		err = errors.Join(err, client.Start(ctx, name))
	}
	return err
}

// sameAsAsked fails if the options would change an existing cluster.
func (p *plan) sameAsAsked(o upOptions) error {
	if o.Nodes != 0 && o.Nodes != p.state.Nodes {
		return p.Differs(fmt.Sprintf("%d nodes", p.state.Nodes), fmt.Sprintf("%d nodes", o.Nodes))
	}
	if o.Agents != 0 && o.Agents != p.state.Agents {
		return p.Differs(fmt.Sprintf("%d agents", p.state.Agents), fmt.Sprintf("%d agents", o.Agents))
	}
	if o.Operator && !p.state.Operator {
		return p.Differs("no operator", "one")
	}
	if has := p.state.Ports[portAPIServer]; o.APIServerPort != 0 && o.APIServerPort != has {
		return p.Differs(fmt.Sprintf("API server port %d", has), fmt.Sprintf("API server port %d", o.APIServerPort))
	}
	return p.SameBundle(o.Bundle, p.bundle, serviceCIDR)
}
