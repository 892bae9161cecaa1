// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/binaries"
	"github.com/fairlead-dev/fairlead/pkg/components"
)

// Up creates a cluster, starts a stopped one, or finds it running. It returns when all
// programs are ready and the user's kubeconfig has the context.
//
// If it fails or ctx ends, it removes what it created (unless Retain is set), but keeps the
// logs. If the cluster existed before, it stops what it started. It fails with
// cluster.ErrBusy if another command works on the cluster, and with cluster.ErrIncomplete if
// an earlier Up was killed before it finished.
func (p *Provider) Up(ctx context.Context, shared cluster.UpOptions) error {
	o := upOptions{UpOptions: shared, Settings: p.settings}
	if err := o.complete(); err != nil {
		return err
	}
	if err := cluster.CheckBundle(o.Bundle); err != nil {
		return err
	}
	l, err := NewLayout(p.root, o.Name)
	if err != nil {
		return err
	}
	if err := cluster.CheckFree(l.Dir, minFree, cluster.OtherDisk); err != nil {
		return err
	}
	if err := cluster.CheckKubeconfig(o.Kubeconfig); err != nil {
		return err
	}
	if err := cluster.CheckLoopback(ctx); err != nil {
		return err
	}
	unlock, err := l.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := l.CheckProvider(cluster.Embedded); err != nil {
		return err
	}
	state, err := l.readState()
	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return l.create(ctx, o)
	case err != nil:
		return err
	case state.Phase != cluster.PhaseReady:
		return l.Incomplete("its creation has not ended")
	}
	return l.resume(ctx, o, state)
}

// create creates a new cluster.
func (l Layout) create(ctx context.Context, o upOptions) error {
	// Processes of a cluster whose directory was deleted by hand would write into the new
	// one.
	if err := l.stop(ctx); err != nil {
		return err
	}
	pl, err := l.newPlan(ctx, o)
	if err != nil {
		return errors.Join(err, os.Remove(l.LockFile()))
	}
	if err := pl.make(ctx, o); err != nil {
		return err
	}
	return pl.addContext(o)
}

// addContext adds the running cluster to the user's kubeconfig.
func (p *plan) addContext(o upOptions) error {
	p.noteNetwork(o.Progress)
	return p.AddContext(o.Progress, o.Kubeconfig, &p.state.Kubeconfigs, func() error { return p.writeState(p.state) })
}

// make creates a new cluster according to the plan.
func (p *plan) make(ctx context.Context, o upOptions) (err error) {
	defer func() {
		if err != nil {
			err = p.abandon(ctx, o.Retain, err)
		}
	}()
	if err := p.Claim(cluster.Embedded); err != nil {
		return err
	}
	if err := p.makeDirs(); err != nil {
		return err
	}
	if err := p.writeState(p.state); err != nil {
		return err
	}
	if err := p.StoreBundle(p.bundle); err != nil {
		return err
	}
	if err := p.bringUp(ctx, o); err != nil {
		return err
	}
	p.state.Phase = cluster.PhaseReady
	return p.writeState(p.state)
}

// newPlan decides everything about a new cluster without touching its directory.
func (l Layout) newPlan(ctx context.Context, o upOptions) (*plan, error) {
	b, err := cluster.CompleteBundle(o.Bundle, serviceCIDR)
	if err != nil {
		return nil, err
	}
	if o.Operator && tunnelapi.Enabled(b) {
		return nil, errors.New("--operator: the operator could not apply a Bundle with tunnelAPI.enabled, because the cluster has that part already: leave out --operator, or tunnelAPI")
	}
	pl := &plan{Layout: l, bundle: b, state: State{
		Record: cluster.NewRecord(l.Name), Agents: orDefault(o.Agents, DefaultAgents), Schedulers: replicas(b), Operator: o.Operator,
	}}
	pl.state.Nodes = orDefault(o.Nodes, DefaultNodes)
	fixed := map[string]int{}
	if o.APIServerPort != 0 {
		fixed[portAPIServer] = o.APIServerPort
	}
	if err := pl.findPrograms(ctx, o); err != nil {
		return nil, err
	}
	names := slices.Concat(portNames(pl.state.Agents, pl.state.Schedulers), pl.gatewayPorts(), pl.tunnelAPIPorts(), pl.operatorPorts())
	pl.state.Ports, err = choosePorts(ctx, names, fixed, pl.state.HostIP)
	return pl, err
}

// findPrograms fills in what may differ between two starts of a cluster.
func (p *plan) findPrograms(ctx context.Context, o upOptions) error {
	bins, err := binaries.Find(ctx, o.Binaries, o.Progress)
	if err != nil {
		return err
	}
	if bins["fairlead"], err = fairlead(); err != nil {
		return err
	}
	for name, runs := range map[string]bool{tunnelapi.Binary: tunnelapi.Enabled(p.bundle), operator.Binary: p.state.Operator} {
		if !runs {
			continue
		}
		if bins[name], err = binaries.Own(name); err != nil {
			return err
		}
	}
	p.bins, p.nodeSecret, p.state.HostIP = bins, rand.Text(), hostAddress()
	p.state.KubernetesVersion = components.KubernetesVersion() // changes with an upgrade
	return nil
}

// replicas returns the number of replicas of the second scheduler; 0 if it is disabled.
func replicas(b *v1alpha1.Bundle) int {
	if !ptr.Deref(b.Scheduler.Enabled, true) {
		return 0
	}
	return int(ptr.Deref(b.Scheduler.Replicas, 1))
}

func orDefault(n, fallback int) int {
	if n == 0 {
		return fallback
	}
	return n
}

// bringUp does everything between a finished plan and a working cluster.
func (p *plan) bringUp(ctx context.Context, o upOptions) error {
	err := cluster.Step(o.Progress, "Writing certificates and configuration", func() (string, error) {
		p.began = time.Now()
		if err := p.writeMaterial(p.began); err != nil {
			return "", err
		}
		return "", p.writePrograms()
	})
	if err != nil {
		return err
	}
	if err := p.startSupervisor(ctx); err != nil {
		return err
	}
	return p.followUp(ctx, o)
}
