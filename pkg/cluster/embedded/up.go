package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/deploy/components"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/binaries"
)

// Up makes a cluster, starts one that is stopped, or finds it running. It
// returns when all programs are ready and the user's kubeconfig has the context.
//
// When it fails or ctx ends it removes what it made (unless Retain), keeping
// the logs, and stops what it started of a cluster that was there before.
// ErrBusy: another command works on the cluster. ErrIncomplete: an Up before
// was killed half-way.
func (p *Provider) Up(ctx context.Context, o UpOptions) error {
	if err := o.complete(); err != nil {
		return err
	}
	l, err := NewLayout(p.root, o.Name)
	if err != nil {
		return err
	}
	if err := checkFree(l.Dir, minFree); err != nil {
		return err
	}
	if err := cluster.CheckKubeconfig(o.Kubeconfig); err != nil {
		return err
	}
	unlock, err := l.lock()
	if err != nil {
		return err
	}
	defer unlock()
	state, err := l.readState()
	switch {
	case errors.Is(err, ErrNotFound):
		return l.create(ctx, o)
	case err != nil:
		return err
	case state.Phase != PhaseReady:
		return l.incomplete("its creation has not ended")
	}
	return l.resume(ctx, o, state)
}

// create makes a new cluster.
func (l Layout) create(ctx context.Context, o UpOptions) error {
	// Processes of a cluster whose directory somebody deleted would write into the new one.
	if err := l.stop(ctx); err != nil {
		return err
	}
	pl, err := l.newPlan(ctx, o)
	if err != nil {
		return errors.Join(err, os.Remove(l.lockFile()))
	}
	if err := pl.make(ctx, o); err != nil {
		return err
	}
	return pl.addContext(o)
}

// make turns the plan of a new cluster into one.
func (p *plan) make(ctx context.Context, o UpOptions) (err error) {
	defer func() {
		if err != nil {
			err = p.abandon(ctx, o.Retain, err)
		}
	}()
	if err := p.makeDirs(); err != nil {
		return err
	}
	if err := p.writeState(p.state); err != nil {
		return err
	}
	stored, err := yaml.Marshal(p.bundle)
	if err != nil {
		return fmt.Errorf("encoding the bundle: %w", err)
	}
	if err := writeFile(p.BundleFile(), stored, 0o600); err != nil {
		return err
	}
	if err := p.bringUp(ctx, o); err != nil {
		return err
	}
	p.state.Phase = PhaseReady
	return p.writeState(p.state)
}

// addContext merges the kubeconfig. The cluster is whole before, so a problem
// with the user's file leaves it running.
func (p *plan) addContext(o UpOptions) error {
	err := cluster.Step(o.Progress, "Writing context "+cluster.ContextName(p.Name), func() (string, error) {
		admin, err := os.ReadFile(p.AdminKubeconfig())
		if err != nil {
			return "", err
		}
		file, previous, err := cluster.MergeKubeconfig(p.Name, o.Kubeconfig, admin)
		if err != nil {
			return "", err
		}
		// Down may run in another directory.
		if file, err = filepath.Abs(file); err != nil {
			return "", err
		}
		if !slices.Contains(p.state.Kubeconfigs, file) {
			p.state.Kubeconfigs = append(p.state.Kubeconfigs, file)
			if err := p.writeState(p.state); err != nil {
				return file, err
			}
		}
		if previous == "" || previous == cluster.ContextName(p.Name) {
			return file, nil
		}
		return file, writeFile(p.previousContext(), []byte(previous), 0o600)
	})
	if err != nil {
		return fmt.Errorf("%w\nthe cluster runs: \"fairlead kubeconfig --name %s\" prints its kubeconfig, \"up\" again writes the context", err, p.Name)
	}
	return nil
}

// newPlan decides everything about a new cluster without touching its directory.
func (l Layout) newPlan(ctx context.Context, o UpOptions) (*plan, error) {
	b, err := completeBundle(o.Bundle)
	if err != nil {
		return nil, err
	}
	pl := &plan{Layout: l, bundle: b, state: State{
		Version: stateVersion, Name: l.Name, Phase: PhaseCreating, Created: time.Now().UTC(),
		Nodes: orDefault(o.Nodes, DefaultNodes), Agents: orDefault(o.Agents, DefaultAgents),
		Schedulers: replicas(b),
	}}
	fixed := map[string]int{}
	if o.APIServerPort != 0 {
		fixed[portAPIServer] = o.APIServerPort
	}
	if err := pl.findPrograms(ctx, o); err != nil {
		return nil, err
	}
	pl.state.Ports, err = choosePorts(ctx, portNames(pl.state.Agents, pl.state.Schedulers), fixed, pl.state.HostIP)
	return pl, err
}

// completeBundle returns a bundle with defaults filled in and checked, the
// default one for nil. The caller's stays as it is.
func completeBundle(given *v1alpha1.Bundle) (*v1alpha1.Bundle, error) {
	if given == nil {
		return bundle.Load(nil)
	}
	b := given.DeepCopy()
	v1alpha1.Default(b)
	if errs := bundle.Validate(b); len(errs) > 0 {
		return nil, fmt.Errorf("the bundle: %w", errs.ToAggregate())
	}
	return b, nil
}

// findPrograms fills in what may differ between two starts of a cluster.
func (p *plan) findPrograms(ctx context.Context, o UpOptions) error {
	bins, err := binaries.Find(ctx, o.Binaries, o.Progress)
	if err != nil {
		return err
	}
	if bins["fairlead"], err = fairlead(); err != nil {
		return err
	}
	p.bins, p.nodeSecret, p.state.HostIP = bins, rand.Text(), hostAddress()
	p.state.KubernetesVersion = components.KubernetesVersion() // another one after an upgrade
	return nil
}

// replicas of the second scheduler; none when it is switched off.
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

// bringUp is everything between a decided plan and a working cluster.
func (p *plan) bringUp(ctx context.Context, o UpOptions) error {
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
