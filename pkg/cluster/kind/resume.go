// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	kindcluster "sigs.k8s.io/kind/pkg/cluster"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// ErrNodesMissing is returned if containers of a cluster were removed outside
// fairlead.
var ErrNodesMissing = errors.New("containers of the cluster are missing")

// Resume implements cluster.Driver.
func (p *plan) Resume(ctx context.Context) error {
	var err error
	if p.bundle, err = p.StoredBundle(); err != nil {
		return err
	}
	if err := p.sameAsAsked(p.options); err != nil {
		return err
	}
	rt, err := p.runtime(ctx)
	if err != nil {
		return err
	}
	if err := rt.ping(ctx); err != nil {
		return err
	}
	return cluster.Interrupted(ctx, p.startStopped(ctx, rt))
}

// startStopped starts containers that are stopped, and waits until all parts are ready.
func (p *plan) startStopped(ctx context.Context, rt *runtime) error {
	stopped, err := p.stopped(ctx, rt)
	if err != nil {
		return err
	}
	config, err := p.adminConfig()
	if err != nil {
		return err
	}
	reporter := p.options.Progress
	defer p.notePending(reporter)
	if len(stopped) > 0 {
		return p.start(ctx, rt, stopped, config, reporter)
	}
	return progress.Step(reporter, fmt.Sprintf("Cluster %s is running already", p.Name), func() (string, error) {
		return "", p.awaitReady(ctx, config, progress.Silent)
	})
}

// start starts containers that were stopped, control plane nodes first.
func (p *plan) start(ctx context.Context, rt *runtime, stopped []string, config *rest.Config, reporter progress.Reporter) error {
	p.restarted = map[string]time.Time{}
	for _, name := range stopped {
		p.restarted[name] = time.Now()
	}
	err := progress.Step(reporter, "Starting "+progress.Count(len(stopped), "stopped container"), func() (string, error) {
		_, err := rt.run(ctx, append([]string{"start"}, stopped...)...)
		return "", err
	})
	if err != nil {
		return err
	}
	return p.awaitReady(ctx, config, reporter)
}

// stopped returns the containers that do not run, in the order of their
// creation: the runtime assigns addresses in that order, and etcd's members know
// each other by address.
func (p *plan) stopped(ctx context.Context, rt *runtime) ([]string, error) {
	library := rt.kind(newLogger(progress.Silent))
	list, err := rt.containers(ctx, library, p.Name)
	if err != nil {
		return nil, err
	}
	var missing, stopped []string
	for _, name := range p.containerNames() {
		if !slices.ContainsFunc(list, func(c container) bool { return c.name == name }) {
			missing = append(missing, name)
		}
	}
	if len(list) > 0 && !p.ours(list) {
		return nil, fmt.Errorf("%w: containers of another kind cluster have the name %s: give yours another name, or remove that one with \"kind delete cluster --name %s\" if it is not needed", ErrNameTaken, kindName(p.Name), kindName(p.Name))
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%w: %v: they were removed by other means than fairlead: run \"fairlead down --name %s\" and then \"up\" again", ErrNodesMissing, missing, p.Name)
	}
	for _, c := range list {
		if !c.running {
			stopped = append(stopped, c.name)
		}
	}
	return stopped, nil
}

// sameAsAsked fails if the options would change an existing cluster.
func (p *plan) sameAsAsked(o upOptions) error {
	if o.Image != "" && o.Image != p.state.Image && !(built(o.Image) && built(p.state.Image)) {
		return p.Differs("image "+p.state.Image, o.Image)
	}
	if o.ControlPlanes != 0 && o.ControlPlanes != p.state.ControlPlanes {
		return p.Differs(progress.Count(p.state.ControlPlanes, "control plane"), fmt.Sprint(o.ControlPlanes))
	}
	if o.Workers != nil && *o.Workers != p.state.Workers {
		return p.Differs(progress.Count(p.state.Workers, "worker"), fmt.Sprint(*o.Workers))
	}
	if o.Operator && !p.state.Operator {
		return p.Differs("no operator", "with one")
	}
	if o.APIServerPort != 0 && o.APIServerPort != p.state.Port {
		return p.Differs(fmt.Sprintf("API server port %d", p.state.Port), fmt.Sprintf("port %d", o.APIServerPort))
	}
	if o.Bundle == nil {
		return nil
	}
	asked, err := completeBundle(o.Bundle, p.state.ControlPlanes)
	if err != nil {
		return err
	}
	return p.SameBundle(asked, p.bundle, serviceSubnet)
}

// adminConfig returns the administrator's client configuration.
func (p *plan) adminConfig() (*rest.Config, error) {
	data, err := p.AdminKubeconfigData()
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", p.AdminKubeconfig(), err)
	}
	config.QPS = -1
	return config, nil
}

// existing returns kind's library for an existing cluster.
func (p *plan) existing(ctx context.Context) (*kindcluster.Provider, error) {
	rt, err := p.runtime(ctx)
	if err != nil {
		return nil, err
	}
	return rt.kind(newLogger(progress.Silent)), nil
}
