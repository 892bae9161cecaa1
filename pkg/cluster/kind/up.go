// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	kindcluster "sigs.k8s.io/kind/pkg/cluster"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/imagetar"
)

// ErrNameTaken is returned if a kind cluster of that name exists outside this
// state directory, or another container has the name of one of the nodes.
var ErrNameTaken = errors.New("the name is taken")

// minFree is the disk space that a cluster's own files need on this machine; the
// container runtime stores the nodes.
const minFree = 512 << 20

// Up creates a cluster, starts one whose containers are stopped, or finds it
// running. It returns when all parts are ready and the user's kubeconfig has the
// context.
//
// If it fails or ctx ends, it removes what it created (unless Retain is set), but
// keeps the logs of kind and of the nodes. It fails with cluster.ErrBusy if
// another command works on the cluster, and with cluster.ErrIncomplete if an
// earlier Up was killed before it finished.
func (p *Provider) Up(ctx context.Context, shared cluster.UpOptions) error {
	o := upOptions{UpOptions: shared, Settings: p.settings}
	if err := o.complete(); err != nil {
		return err
	}
	if err := cluster.CheckBundle(o.Bundle); err != nil {
		return err
	}
	home, err := cluster.NewHome(p.root, o.Name)
	if err != nil {
		return err
	}
	if err := cluster.CheckFree(home.Dir, minFree, cluster.OtherDisk); err != nil {
		return err
	}
	if err := cluster.CheckKubeconfig(o.Kubeconfig); err != nil {
		return err
	}
	unlock, err := home.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := home.CheckProvider(cluster.Kind); err != nil {
		return err
	}
	pl, err := p.load(ctx, o.Name)
	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return create(ctx, home, o)
	case err != nil:
		return err
	case pl.state.Phase != cluster.PhaseReady:
		return home.Incomplete("its creation has not ended")
	}
	return pl.resume(ctx, o)
}

// create creates a new cluster.
func create(ctx context.Context, home cluster.Home, o upOptions) error {
	pl, rt, err := newPlan(ctx, home, o)
	if err != nil {
		return errors.Join(interrupted(ctx, err), os.Remove(home.LockFile()))
	}
	if err := pl.make(ctx, rt, o); err != nil {
		return err
	}
	return pl.addContext(o)
}

// newPlan decides everything about a new cluster and creates nothing.
func newPlan(ctx context.Context, home cluster.Home, o upOptions) (*plan, *runtime, error) {
	pl := &plan{Home: home, state: State{
		Record: cluster.NewRecord(home.Name), ControlPlanes: max(o.ControlPlanes, DefaultControlPlanes), Workers: ptr.Deref(o.Workers, DefaultWorkers),
	}}
	pl.state.Nodes = pl.state.ControlPlanes + pl.state.Workers
	var err error
	if pl.bundle, err = completeBundle(o.Bundle, pl.state.ControlPlanes); err != nil {
		return nil, nil, err
	}
	rt, err := findRuntime(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := rt.ping(ctx); err != nil {
		return nil, nil, err
	}
	pl.state.Runtime = rt.command
	if err := pl.checkName(ctx, rt); err != nil {
		return nil, nil, err
	}
	if pl.state.Port, err = choosePort(ctx, o.APIServerPort); err != nil {
		return nil, nil, err
	}
	return pl, rt, pl.findImages(ctx, rt, o)
}

func choosePort(ctx context.Context, asked int) (int, error) {
	if asked == 0 {
		return cluster.FreePort(ctx, nil, cluster.Loopback)
	}
	if err := cluster.CheckPort(ctx, "kube-apiserver", asked, cluster.Loopback); err != nil {
		return 0, fmt.Errorf("--api-server-port: %w", err)
	}
	return asked, nil
}

// checkName refuses a name that kind already knows, because that cluster is not
// from this state directory. It also refuses a name if a container that is not a
// kind node has the name of one of the cluster's nodes.
func (p *plan) checkName(ctx context.Context, rt *runtime) error {
	names, err := rt.kind(newLogger(cluster.Silent)).List()
	if err != nil {
		return fmt.Errorf("listing kind clusters: %w", err)
	}
	if slices.Contains(names, kindName(p.Name)) {
		return fmt.Errorf("%w: a kind cluster %q exists that was not made from %s: remove it with \"kind delete cluster --name %s\", or use another --name",
			ErrNameTaken, kindName(p.Name), filepath.Dir(p.Dir), kindName(p.Name))
	}
	out, err := rt.run(ctx, "ps", "--all", "--format={{.Names}}")
	if err != nil {
		return fmt.Errorf("listing containers: %w", err)
	}
	for _, name := range p.containerNames() {
		if slices.Contains(strings.Fields(out), name) {
			return fmt.Errorf("%w: a container %s exists that is no node of a kind cluster: remove it with \"%s rm --force %s\" if it is not needed, or use another --name",
				ErrNameTaken, name, rt.command, name)
		}
	}
	return nil
}

// findImages chooses the node image and the images to load. Both take about a
// second, which is mostly waiting.
func (p *plan) findImages(ctx context.Context, rt *runtime, o upOptions) error {
	var own []*imagetar.Image
	var ownErr error
	packed := make(chan struct{})
	go func() {
		defer close(packed)
		own, ownErr = ownImages(p.bundle)
	}()
	var err error
	p.state.Image, p.facts, err = rt.chooseImage(ctx, o.Image, o.Progress)
	if err == nil && p.loadBalancer() != "" {
		err = rt.needLoadBalancer(ctx, o.Progress)
	}
	<-packed
	if err = errors.Join(err, ownErr); err != nil {
		return err
	}
	p.load = notBaked(own, p.facts.baked)
	p.state.KubernetesVersion = p.facts.version
	// The image that this repository builds has a Pod network that suits kind
	// only. Our own is up as soon as a node is.
	p.state.OwnPodNetwork = !p.facts.defaultCNI || built(p.state.Image)
	return rt.checkRoom(ctx, p.state.Image, p.state.Nodes)
}

// make creates a new cluster according to the plan.
func (p *plan) make(ctx context.Context, rt *runtime, o upOptions) (err error) {
	log := newLogger(o.Progress)
	library := rt.kind(log)
	defer func() {
		if err != nil {
			err = p.abandon(ctx, library, log, o.Retain, err)
		}
	}()
	if err := p.Claim(cluster.Kind); err != nil {
		return err
	}
	if err := p.writeState(); err != nil {
		return err
	}
	var ca pki.KeyPair
	began := time.Now()
	err = cluster.Step(o.Progress, "Writing certificates, configuration and images", func() (string, error) {
		if ca, err = p.writeMaterial(time.Now()); err != nil {
			return "", err
		}
		return since(began), p.writeImages()
	})
	if err != nil {
		return err
	}
	if err := p.bringUp(ctx, library, log, ca, o); err != nil {
		return err
	}
	if err := p.storeKubeconfig(library); err != nil {
		return err
	}
	p.state.Phase = cluster.PhaseReady
	return p.writeState()
}

func (p *plan) writeState() error { return cluster.WriteJSON(p.StateFile(), p.state) }

// bringUp lets kind create the nodes and installs the bundle at the same time, so
// that the first Pods start before all nodes have joined.
func (p *plan) bringUp(ctx context.Context, library *kindcluster.Provider, log *logger, ca pki.KeyPair, o upOptions) error {
	config, err := p.bootstrapConfig(ca, time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	installed := make(chan error, 1)
	go func() { installed <- p.install(ctx, config) }()
	err = p.createNodes(ctx, library, o.Retain)
	log.close(err)
	if err != nil {
		cancel()
		if installErr := <-installed; !errors.Is(installErr, context.Canceled) {
			err = errors.Join(err, installErr)
		}
		return err
	}
	began := time.Now()
	err = cluster.Step(o.Progress, "Installing the bundle", func() (string, error) {
		select {
		case err := <-installed:
			return since(began), err
		case <-time.After(installLimit):
			cancel()
			return "", fmt.Errorf("the API server %s did not take the bundle within %v: %w", config.Host, installLimit, <-installed)
		}
	})
	if err != nil {
		return err
	}
	defer p.notePending(o.Progress)
	return p.awaitReady(ctx, config, o.Progress)
}

// installLimit bounds the wait for the bundle's objects after kind has finished.
const installLimit = time.Minute

// addContext adds the cluster to the user's kubeconfig.
func (p *plan) addContext(o upOptions) error {
	return p.AddContext(o.Progress, o.Kubeconfig, &p.state.Kubeconfigs, p.writeState)
}

// storeKubeconfig stores kind's kubeconfig, which has the API server's address on
// this machine, under this package's names.
func (p *plan) storeKubeconfig(library *kindcluster.Provider) error {
	data, err := library.KubeConfig(kindName(p.Name), false)
	if err != nil {
		return fmt.Errorf("reading the cluster's kubeconfig: %w", err)
	}
	return p.StoreAdminKubeconfig([]byte(data))
}
