// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	kindcluster "sigs.k8s.io/kind/pkg/cluster"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/imagetar"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// ErrNameTaken is returned if a kind cluster of that name exists outside this
// state directory, or another container has the name of one of the nodes.
var ErrNameTaken = errors.New("the name is taken")

// minFree is the disk space that a cluster's own files need on this machine; the
// container runtime stores the nodes.
const minFree = 512 << 20

// Up implements cluster.Provider. It returns when all parts are ready and the user's
// kubeconfig has the context.
func (p *Provider) Up(ctx context.Context, shared cluster.UpOptions) error {
	o := upOptions{UpOptions: shared, Settings: p.settings}
	if err := o.complete(); err != nil {
		return err
	}
	home, err := cluster.NewHome(p.root, o.Name)
	if err != nil {
		return err
	}
	return (&plan{Home: home, options: o}).lifecycle().Up(ctx, o.UpOptions)
}

// lifecycle returns the cluster's lifecycle, whose driver is the plan.
func (p *plan) lifecycle() *cluster.Lifecycle {
	return &cluster.Lifecycle{
		Driver: p, Provider: cluster.Kind, Home: p.Home, Record: &p.state.Record, MinFree: minFree,
		Removing: "Removing the containers and files of " + kindName(p.Name), Kept: " and its containers", Logs: "logs of kind and of the nodes",
	}
}

// CheckMachine implements cluster.Driver. Plan checks the container runtime.
func (p *plan) CheckMachine(context.Context) error { return nil }

// Load implements cluster.Driver.
func (p *plan) Load() error { return p.ReadState(&p.state, &p.state.Record) }

// Save implements cluster.Driver.
func (p *plan) Save() error { return cluster.WriteJSON(p.StateFile(), p.state) }

// ServerURL implements cluster.Driver.
func (p *plan) ServerURL() string { return p.state.serverURL() }

// Plan implements cluster.Driver.
func (p *plan) Plan(ctx context.Context) error { return cluster.Interrupted(ctx, p.decide(ctx)) }

// decide decides everything about a new cluster.
func (p *plan) decide(ctx context.Context) error {
	o := p.options
	p.state = State{
		Record: cluster.NewRecord(p.Name), ControlPlanes: max(o.ControlPlanes, DefaultControlPlanes), Workers: ptr.Deref(o.Workers, DefaultWorkers), Operator: o.Operator,
	}
	p.state.Nodes = p.state.ControlPlanes + p.state.Workers
	var err error
	if p.bundle, err = completeBundle(o.Bundle, p.state.ControlPlanes); err != nil {
		return err
	}
	if p.runs, err = findRuntime(ctx); err != nil {
		return err
	}
	if err := p.runs.ping(ctx); err != nil {
		return err
	}
	p.state.Runtime = p.runs.command
	if err := p.checkName(ctx, p.runs); err != nil {
		return err
	}
	if p.state.Port, err = choosePort(ctx, o.APIServerPort); err != nil {
		return err
	}
	return p.findImages(ctx, p.runs, o)
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
	names, err := rt.kind(newLogger(progress.Silent)).List()
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
		own, ownErr = ownImages(p.images())
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

// Create implements cluster.Driver.
func (p *plan) Create(ctx context.Context) error {
	p.log = newLogger(p.options.Progress)
	p.library = p.runs.kind(p.log)
	var ca pki.KeyPair
	began := time.Now()
	err := progress.Step(p.options.Progress, "Writing certificates, configuration and images", func() (result string, err error) {
		if ca, err = p.writeMaterial(time.Now()); err != nil {
			return "", err
		}
		return since(began), p.writeImages()
	})
	if err != nil {
		return err
	}
	if err := p.bringUp(ctx, ca); err != nil {
		return err
	}
	return p.storeKubeconfig(p.library)
}

// bringUp lets kind create the nodes and installs the bundle at the same time, so
// that the first Pods start before all nodes have joined.
func (p *plan) bringUp(ctx context.Context, ca pki.KeyPair) error {
	o := p.options
	config, err := p.bootstrapConfig(ca, time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	installed := make(chan error, 1)
	go func() { installed <- p.install(ctx, config) }()
	err = p.createNodes(ctx, p.library, o.Retain)
	p.log.close(err)
	if err != nil {
		cancel()
		if installErr := <-installed; !errors.Is(installErr, context.Canceled) {
			err = errors.Join(err, installErr)
		}
		return err
	}
	began := time.Now()
	err = progress.Step(o.Progress, "Installing the bundle", func() (string, error) {
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

// storeKubeconfig stores kind's kubeconfig, which has the API server's address on
// this machine, under this package's names.
func (p *plan) storeKubeconfig(library *kindcluster.Provider) error {
	data, err := library.KubeConfig(kindName(p.Name), false)
	if err != nil {
		return fmt.Errorf("reading the cluster's kubeconfig: %w", err)
	}
	return p.StoreAdminKubeconfig([]byte(data))
}
