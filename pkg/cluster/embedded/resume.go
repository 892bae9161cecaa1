// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// Resume implements cluster.Driver.
func (p *plan) Resume(ctx context.Context) error {
	var err error
	if p.bundle, err = p.StoredBundle(); err != nil {
		return err
	}
	if err := p.sameAsAsked(p.options); err != nil {
		return err
	}
	reporter := p.options.Progress
	_, err = process.NewClient(p.SupervisorSocket()).Status(ctx)
	switch {
	case err == nil && p.state.addressHolds():
		err := progress.Step(reporter, fmt.Sprintf("Cluster %s is running already", p.Name), func() (string, error) {
			if err := p.startStopped(ctx); err != nil {
				return "", err
			}
			return "", p.followUp(ctx, progress.Silent)
		})
		if err != nil {
			return err
		}
	case err != nil && !errors.Is(err, process.ErrNotRunning):
		return fmt.Errorf("%w: if it stays like that, remove the cluster with \"fairlead down --name %s\"", err, p.Name)
	default:
		// The cluster is stopped, or runs at an address that the machine no longer has
		// or that is no longer the best.
		if err := p.restart(ctx); err != nil {
			return err
		}
	}
	p.noteNetwork(reporter)
	return nil
}

// restart starts all programs again. If that fails, the cluster is stopped as before.
func (p *plan) restart(ctx context.Context) error {
	if err := p.findPrograms(ctx); err != nil {
		return err
	}
	if err := p.stop(ctx); err != nil {
		return err
	}
	if err := awaitPorts(ctx, p.state.Ports, p.state.HostIP); err != nil {
		return err
	}
	if err := p.makeDirs(); err != nil {
		return err
	}
	if err := p.Save(); err != nil {
		return err
	}
	cause := p.bringUp(ctx)
	if cause == nil {
		return nil
	}
	cause = cluster.Interrupted(ctx, cause)
	ctx, cancel := cluster.CleanupContext(ctx)
	defer cancel()
	if err := p.stop(ctx); err != nil {
		return fmt.Errorf("%w\nstopping it again failed too: %w", cause, err)
	}
	return fmt.Errorf("%w\nthe cluster is stopped as before; its logs are in %s", cause, p.LogDir())
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
		return p.Differs(progress.Count(p.state.Nodes, "node"), progress.Count(o.Nodes, "node"))
	}
	if o.Agents != 0 && o.Agents != p.state.Agents {
		return p.Differs(progress.Count(p.state.Agents, "agent"), progress.Count(o.Agents, "agent"))
	}
	if o.Operator && !p.state.Operator {
		return p.Differs("no operator", "with one")
	}
	if has := p.state.Ports[portAPIServer]; o.APIServerPort != 0 && o.APIServerPort != has {
		return p.Differs(fmt.Sprintf("API server port %d", has), fmt.Sprintf("API server port %d", o.APIServerPort))
	}
	return p.SameBundle(o.Bundle, p.bundle, serviceCIDR)
}
