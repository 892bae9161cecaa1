// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/pflag"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/nodeimage"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// Provider manages kind clusters whose state is below one directory.
type Provider struct {
	root     string
	settings Settings
}

var _ cluster.Provider = (*Provider)(nil)

// NewProvider returns a provider for the clusters below root, usually
// cluster.Root().
func NewProvider(root string, settings Settings) *Provider {
	return &Provider{root: root, settings: settings}
}

// Name implements cluster.Provider.
func (p *Provider) Name() string { return cluster.Kind }

// Defaults of Settings.
const (
	DefaultControlPlanes = 1
	DefaultWorkers       = 2
)

// Settings are those that only kind clusters have; Up reads them.
type Settings struct {
	// Image is the node image. If it is "", a new cluster gets the image that this
	// repository builds, if that exists, or else kind's own; an existing cluster
	// keeps its image.
	Image string
	// ControlPlanes is 1 or 3; 0 means 1 for a new cluster, and keeps the number of
	// an existing one.
	ControlPlanes int
	// Workers is the number of worker nodes; nil means 2 for a new cluster, and
	// keeps the number of an existing one.
	Workers *int
}

// NewSettings returns the settings of kind clusters with their defaults.
func NewSettings() cluster.Settings { return &Settings{} }

// ProviderName implements cluster.Settings.
func (s *Settings) ProviderName() string { return cluster.Kind }

// AddFlags implements cluster.Settings.
func (s *Settings) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&s.Image, "image", "", fmt.Sprintf("kind: node image (default: %s if it exists, otherwise kind's own)", nodeimage.Name()))
	f.IntVar(&s.ControlPlanes, "control-planes", 0, fmt.Sprintf("kind: number of control plane nodes, 1 or 3 (default %d)", DefaultControlPlanes))
	f.Var(optionalInt{&s.Workers}, "workers", fmt.Sprintf("kind: number of worker nodes (default %d)", DefaultWorkers))
}

// Validate implements cluster.Settings.
func (s *Settings) Validate(f *pflag.FlagSet) error {
	return cluster.CheckPositive(f, "control-planes")
}

// Provider implements cluster.Settings.
func (s *Settings) Provider(root string) cluster.Provider { return NewProvider(root, *s) }

// optionalInt is the value of a flag that stays nil unless the user sets it.
type optionalInt struct{ n **int }

// String implements pflag.Value.
func (o optionalInt) String() string {
	if o.n == nil || *o.n == nil {
		return "0"
	}
	return strconv.Itoa(**o.n)
}

// Set implements pflag.Value.
func (o optionalInt) Set(text string) error {
	n, err := strconv.ParseInt(text, 0, 0)
	*o.n = new(int)
	**o.n = int(n)
	return err
}

// Type implements pflag.Value.
func (o optionalInt) Type() string { return "int" }

// upOptions are all inputs of Up.
type upOptions struct {
	cluster.UpOptions
	Settings
}

// Limits for the names of containers, which are host names of at most 63
// characters, and limits against typing errors.
const (
	maxName    = 38
	maxWorkers = 50
)

// ErrOptions is returned if no cluster can have the requested settings.
var ErrOptions = errors.New("no such cluster can be made")

func (o *upOptions) complete() error {
	if o.Progress == nil {
		o.Progress = progress.Silent
	}
	if len(o.Name) > maxName {
		return fmt.Errorf("%w: cluster name %q has %d characters: use at most %d with --provider kind, as it is part of host names", ErrOptions, o.Name, len(o.Name), maxName)
	}
	if !slices.Contains([]int{0, 1, 3}, o.ControlPlanes) {
		return fmt.Errorf("%w: --control-planes %d: choose 1 or 3: etcd needs a majority, which an even number does not make safer", ErrOptions, o.ControlPlanes)
	}
	if workers := ptr.Deref(o.Workers, DefaultWorkers); workers < 0 || workers > maxWorkers {
		return fmt.Errorf("%w: --workers %d: choose 0 to %d", ErrOptions, workers, maxWorkers)
	}
	if o.ControlPlanes > 1 && ptr.Deref(o.Workers, DefaultWorkers) == 0 {
		return fmt.Errorf("%w: --control-planes %d --workers 0: agents run on no control plane node, so at least one worker is needed", ErrOptions, o.ControlPlanes)
	}
	if o.APIServerPort != 0 && (o.APIServerPort < 1024 || o.APIServerPort > 65535) {
		return fmt.Errorf("%w: --api-server-port %d: choose 1024 to 65535", ErrOptions, o.APIServerPort)
	}
	return nil
}

// completeBundle returns the bundle for this number of control plane nodes. Each
// has a server that agents must be connected to, so the server count is that
// number. With Leases, agents count the servers themselves.
func completeBundle(given *v1alpha1.Bundle, controlPlanes int) (*v1alpha1.Bundle, error) {
	b, err := cluster.CompleteBundle(given, serviceSubnet)
	if err != nil {
		return nil, err
	}
	if b.Konnectivity.Transport.TCP != nil {
		return nil, fmt.Errorf("%w: konnectivity.transport.tcp: the certificates that it names would have to be in the nodes: set konnectivity.transport.uds instead", ErrOptions)
	}
	leases := ptr.Deref(b.Konnectivity.LeaseCounting, false)
	if !leases && ptr.Deref(b.Konnectivity.Server.Count, 1) < int32(controlPlanes) {
		b.Konnectivity.Server.Count = ptr.To(int32(controlPlanes))
	}
	return b, nil
}

// Kubeconfig implements cluster.Provider.
func (p *Provider) Kubeconfig(name string) ([]byte, error) {
	home, _, err := p.find(name)
	if err != nil {
		return nil, err
	}
	return home.AdminKubeconfigData()
}

// find returns an existing cluster.
func (p *Provider) find(name string) (cluster.Home, State, error) {
	var state State
	home, err := cluster.NewHome(p.root, name)
	if err != nil {
		return home, state, err
	}
	return home, state, home.ReadState(&state, &state.Record)
}

// load returns the plan of an existing cluster.
func (p *Provider) load(ctx context.Context, name string) (*plan, error) {
	home, state, err := p.find(name)
	if err != nil {
		return nil, err
	}
	pl := &plan{Home: home, state: state}
	if pl.bundle, err = home.StoredBundle(); err != nil {
		return nil, err
	}
	return pl, ctx.Err()
}
