// SPDX-License-Identifier: Apache-2.0

// Package providers combines all providers of clusters: [Set] finds the
// provider of a cluster by the cluster's name.
package providers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/embedded"
	"github.com/fairlead-dev/fairlead/pkg/cluster/kind"
)

// registered are the providers. The first is the default. To add one, add its line.
var registered = []func() cluster.Settings{
	embedded.NewSettings,
	kind.NewSettings,
}

// Settings returns the settings of all providers, with their defaults. The first are those
// of the default provider.
func Settings() []cluster.Settings {
	var all []cluster.Settings
	for _, settings := range registered {
		all = append(all, settings())
	}
	return all
}

// Set is the set of all providers of the clusters below one directory.
type Set struct {
	root string
	all  []cluster.Provider
}

// New returns the providers of the user's clusters; see cluster.Root.
func New(settings []cluster.Settings) (*Set, error) {
	root, err := cluster.Root()
	if err != nil {
		return nil, err
	}
	return NewAt(root, settings), nil
}

// NewAt returns the providers of the clusters below another directory.
func NewAt(root string, settings []cluster.Settings) *Set {
	s := &Set{root: root}
	for _, of := range settings {
		s.all = append(s.all, of.Provider(root))
	}
	return s
}

// Names returns the names of all providers; the first is the default.
func Names() []string { return NewAt("", Settings()).names() }

func (s *Set) names() []string {
	var names []string
	for _, p := range s.all {
		names = append(names, p.Name())
	}
	return names
}

// ErrUnknown is returned if there is no such provider.
var ErrUnknown = errors.New("no such provider")

// Named returns the provider with this name.
func (s *Set) Named(provider string) (cluster.Provider, error) {
	i := slices.IndexFunc(s.all, func(p cluster.Provider) bool { return p.Name() == provider })
	if i < 0 {
		return nil, fmt.Errorf("%w: %q: choose %s", ErrUnknown, provider, strings.Join(s.names(), " or "))
	}
	return s.all[i], nil
}

// Of returns the provider of the named cluster. If there is no such cluster, it
// returns the default provider, whose error says so.
func (s *Set) Of(name string) (cluster.Provider, error) {
	home, err := cluster.NewHome(s.root, name)
	if err != nil {
		return nil, err
	}
	provider, err := home.Provider()
	if err != nil {
		return nil, err
	}
	if provider == "" {
		return s.all[0], nil
	}
	p, err := s.Named(provider)
	if err != nil {
		return nil, fmt.Errorf("cluster %q was made by another version of fairlead: %w", name, err)
	}
	return p, nil
}

// ForUp returns the provider to bring the named cluster up: the requested one,
// or else the one that has the cluster, or else the default.
func (s *Set) ForUp(name, asked string) (cluster.Provider, error) {
	if asked == "" {
		return s.Of(name)
	}
	home, err := cluster.NewHome(s.root, name)
	if err != nil {
		return nil, err
	}
	p, err := s.Named(asked)
	if err != nil {
		return nil, err
	}
	return p, home.CheckProvider(asked)
}

// Clusters returns the names of all clusters, including incomplete ones.
func (s *Set) Clusters() ([]string, error) {
	entries, err := os.ReadDir(s.root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	names := []string{}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// List returns the status of all clusters, by name. A cluster whose state
// cannot be read has no KubernetesVersion.
func (s *Set) List(ctx context.Context) ([]cluster.Status, error) {
	names, err := s.Clusters()
	if err != nil {
		return nil, err
	}
	list := []cluster.Status{}
	for _, name := range names {
		list = append(list, s.status(ctx, name))
	}
	return list, nil
}

func (s *Set) status(ctx context.Context, name string) cluster.Status {
	home, err := cluster.NewHome(s.root, name)
	if err != nil {
		return incomplete{Summary: cluster.Summary{Name: name, Context: cluster.ContextName(name)}, why: err}
	}
	provider, err := s.Of(name)
	if err == nil {
		var status cluster.Status
		if status, err = provider.Status(ctx, name); err == nil {
			return status
		}
	}
	has, _ := home.Provider()
	return incomplete{Summary: cluster.Summary{Name: name, Provider: has, Dir: home.Dir, Context: cluster.ContextName(name)}, why: err}
}

// CheckEnv is a check.EnvSource: it handles contexts that point to the API
// server of a cluster of this user.
func (s *Set) CheckEnv(ctx context.Context, kubeconfig, kubeContext string) (*check.Env, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: kubeContext})
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, nil //nolint:nilerr // the next user of the kubeconfig reports it
	}
	if kubeContext == "" {
		kubeContext = raw.CurrentContext
	}
	name, ok := strings.CutPrefix(kubeContext, cluster.ContextName(""))
	if !ok {
		return nil, nil
	}
	home, err := cluster.NewHome(s.root, name)
	if err != nil {
		return nil, nil //nolint:nilerr // not a name of one of our clusters
	}
	if has, err := home.Provider(); err != nil || has == "" {
		return nil, err
	}
	provider, err := s.Of(name)
	if err != nil {
		return nil, err
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("context %s: %w", kubeContext, err)
	}
	return provider.CheckEnv(ctx, name, config)
}
