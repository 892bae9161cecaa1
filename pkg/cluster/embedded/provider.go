// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/binaries"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// Provider manages embedded clusters below one directory.
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
func (p *Provider) Name() string { return cluster.Embedded }

// Defaults of Settings.
const (
	DefaultNodes  = 3
	DefaultAgents = 2
)

// Settings are those that only embedded clusters have; Up reads them.
type Settings struct {
	// Nodes and Agents are the numbers of simulated nodes and Konnectivity agents;
	// 0 means the default for a new cluster, and keeps the number of an existing
	// one.
	Nodes, Agents int
	// Binaries configures where the programs come from.
	Binaries binaries.Options
}

// NewSettings returns the settings of embedded clusters with their defaults.
func NewSettings() cluster.Settings { return &Settings{} }

// ProviderName implements cluster.Settings.
func (s *Settings) ProviderName() string { return cluster.Embedded }

// AddFlags implements cluster.Settings.
func (s *Settings) AddFlags(f *pflag.FlagSet) {
	f.IntVar(&s.Nodes, "nodes", 0, fmt.Sprintf("embedded: number of simulated nodes (default %d)", DefaultNodes))
	f.IntVar(&s.Agents, "agents", 0, fmt.Sprintf("embedded: number of Konnectivity agents (default %d)", DefaultAgents))
	f.StringVar(&s.Binaries.Dir, "component-dir", os.Getenv("FAIRLEAD_COMPONENT_DIR"), "embedded: directory with prebuilt etcd, kube-apiserver and so on, instead of building them")
}

// Validate implements cluster.Settings.
func (s *Settings) Validate(f *pflag.FlagSet) error {
	return cluster.CheckPositive(f, "nodes", "agents")
}

// Provider implements cluster.Settings.
func (s *Settings) Provider(root string) cluster.Provider { return NewProvider(root, *s) }

// upOptions are all inputs of Up.
type upOptions struct {
	cluster.UpOptions
	Settings
}

// Limits that keep a typing error from overloading the machine.
const (
	maxNodes  = 5000
	maxAgents = 64
)

func (o *upOptions) complete() error {
	if o.Progress == nil {
		o.Progress = progress.Silent
	}
	if o.Nodes < 0 || o.Nodes > maxNodes {
		return fmt.Errorf("--nodes %d: choose 1 to %d", o.Nodes, maxNodes)
	}
	if o.Agents < 0 || o.Agents > maxAgents {
		return fmt.Errorf("--agents %d: choose 1 to %d", o.Agents, maxAgents)
	}
	if o.APIServerPort != 0 && (o.APIServerPort < 1024 || o.APIServerPort > 65535) {
		return fmt.Errorf("--api-server-port %d: choose 1024 to 65535", o.APIServerPort)
	}
	if o.Bundle != nil && o.Bundle.Konnectivity.Transport.TCP != nil {
		return errors.New("konnectivity.transport.tcp: an embedded cluster has its API server and Konnectivity server on one machine: set konnectivity.transport.uds instead")
	}
	return nil
}

// Kubeconfig returns the administrator's kubeconfig of a cluster, with the
// cluster's context name.
func (p *Provider) Kubeconfig(name string) ([]byte, error) {
	l, err := NewLayout(p.root, name)
	if err != nil {
		return nil, err
	}
	if _, err := l.readState(); err != nil {
		return nil, err
	}
	return l.AdminKubeconfigData()
}

// fairlead is the path of the running executable, for the supervisor and the node gate.
func fairlead() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding the path of this program: %w", err)
	}
	return path, nil
}
