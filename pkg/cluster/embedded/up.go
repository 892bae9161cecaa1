// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/binaries"
	"github.com/fairlead-dev/fairlead/pkg/components"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// Up implements cluster.Provider. It returns when all programs are ready and the user's
// kubeconfig has the context.
func (p *Provider) Up(ctx context.Context, shared cluster.UpOptions) error {
	o := upOptions{UpOptions: shared, Settings: p.settings}
	if err := o.complete(); err != nil {
		return err
	}
	l, err := NewLayout(p.root, o.Name)
	if err != nil {
		return err
	}
	return (&plan{Layout: l, options: o}).lifecycle().Up(ctx, o.UpOptions)
}

// lifecycle returns the cluster's lifecycle, whose driver is the plan.
func (p *plan) lifecycle() *cluster.Lifecycle {
	return &cluster.Lifecycle{
		Driver: p, Provider: cluster.Embedded, Home: p.Home, Record: &p.state.Record, MinFree: minFree,
		Removing: "Stopping and removing " + cluster.ContextName(p.Name), Logs: "its logs",
	}
}

// CheckMachine implements cluster.Driver.
func (p *plan) CheckMachine(ctx context.Context) error {
	if err := checkSystem(runtime.GOOS); err != nil {
		return err
	}
	return cluster.CheckLoopback(ctx)
}

// checkSystem fails on systems without the features that clusters of processes need: parent-death signals and /proc.
func checkSystem(system string) error {
	if system != "linux" {
		return fmt.Errorf("this machine runs %s: a cluster of processes needs Linux: run fairlead up on Linux, or use this command with a cluster elsewhere", system)
	}
	return nil
}

// Load implements cluster.Driver.
func (p *plan) Load() (err error) {
	p.state, err = p.readState()
	return err
}

// Save implements cluster.Driver.
func (p *plan) Save() error { return cluster.WriteJSON(p.StateFile(), p.state) }

// ServerURL implements cluster.Driver.
func (p *plan) ServerURL() string { return p.serverURL() }

// CollectLogs implements cluster.Driver: the programs have written their logs.
func (p *plan) CollectLogs(bool) (string, error) { return "", nil }

// Create implements cluster.Driver.
func (p *plan) Create(ctx context.Context) error {
	if err := p.makeDirs(); err != nil {
		return err
	}
	if err := p.StoreBundle(p.bundle); err != nil {
		return err
	}
	if err := p.bringUp(ctx); err != nil {
		return err
	}
	p.noteNetwork(p.options.Progress)
	return nil
}

// Plan implements cluster.Driver.
func (p *plan) Plan(ctx context.Context) error {
	// Processes of a cluster whose directory was deleted by hand would write into the new
	// one.
	if err := p.stop(ctx); err != nil {
		return err
	}
	o := p.options
	var err error
	if p.bundle, err = cluster.CompleteBundle(o.Bundle, serviceCIDR); err != nil {
		return err
	}
	if o.Operator && tunnelapi.Enabled(p.bundle) {
		return errors.New("--operator: the operator could not apply a Bundle with tunnelAPI.enabled, because the cluster has that part already: leave out --operator, or tunnelAPI")
	}
	p.state = State{Record: cluster.NewRecord(p.Name), Agents: orDefault(o.Agents, DefaultAgents), Schedulers: replicas(p.bundle), Operator: o.Operator}
	p.state.Nodes = orDefault(o.Nodes, DefaultNodes)
	fixed := map[string]int{}
	if o.APIServerPort != 0 {
		fixed[portAPIServer] = o.APIServerPort
	}
	if err := p.findPrograms(ctx); err != nil {
		return err
	}
	names := slices.Concat(portNames(p.state.Agents, p.state.Schedulers), p.gatewayPorts(), p.tunnelAPIPorts(), p.operatorPorts())
	p.state.Ports, err = choosePorts(ctx, names, fixed, p.state.HostIP)
	return err
}

// findPrograms fills in what may differ between two starts of a cluster.
func (p *plan) findPrograms(ctx context.Context) error {
	bins, err := binaries.Find(ctx, p.options.Binaries, p.options.Progress)
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
func (p *plan) bringUp(ctx context.Context) error {
	err := progress.Step(p.options.Progress, "Writing certificates and configuration", func() (string, error) {
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
	return p.followUp(ctx, p.options.Progress)
}
