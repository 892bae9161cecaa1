// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/check/incluster"
	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
)

// env asks the sources. If none knows the cluster, env uses only the kubeconfig. Flags override both.
func (o *Options) env(ctx context.Context) (*check.Env, error) {
	for _, source := range o.Sources {
		env, err := source(ctx, o.Kubeconfig, o.Context)
		if err != nil {
			return nil, err
		}
		if env != nil {
			return o.override(env), o.sameBundle(env)
		}
	}
	env, err := o.genericEnv()
	if err != nil {
		return nil, err
	}
	return o.override(env), nil
}

func (o *Options) genericEnv() (*check.Env, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.Context})
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, check.WithHint(fmt.Errorf("read kubeconfig: %w", err), "set the file with --kubeconfig")
	}
	name := o.Context
	if name == "" {
		name = raw.CurrentContext
	}
	if _, ok := raw.Contexts[name]; !ok {
		return nil, clusterflags.NoContext(name, raw, rules)
	}
	if err := clusterflags.CheckProxyURL(raw, name, ""); err != nil {
		return nil, err
	}
	cfg, err := loader.ClientConfig()
	if err != nil {
		return nil, check.WithHint(fmt.Errorf("context %q: %w", name, err), "kubectl config view")
	}
	env, err := incluster.NewEnv(cfg, o.bundle, o.hostIP)
	if err != nil {
		return nil, err
	}
	env.Cluster = name
	return env, nil
}

// override puts what flags say into env, wherever that comes from.
func (o *Options) override(env *check.Env) *check.Env {
	if o.Filename != "" {
		names := incluster.NamesOf(o.bundle)
		env.SchedulerName, env.Lease = names.SchedulerName, names.Lease
	}
	if o.SchedulerName != "" {
		env.SchedulerName = o.SchedulerName
	}
	if o.Lease != "" {
		if o.lease != env.Lease && !slices.Contains(env.Coexistence.SchedulerNames, env.SchedulerName) {
			// This is not the bundle's scheduler. verify knows nothing else about it.
			env.OwnsIdentity, env.FormerIdentity, env.IdentityLimit = nil, nil, ""
			env.Coexistence = check.Coexistence{SchedulerNames: []string{env.SchedulerName}}
		}
		env.Lease = o.lease
	}
	if o.hostIP != "" {
		env.HostIP, env.HostPort = o.hostIP, o.hostPort
	}
	if o.ServerMetricsURL != "" {
		env.ServerMetrics, env.ServerMetricsAside = incluster.MetricsFrom(o.ServerMetricsURL), false // the URL may lead anywhere
	}
	if o.Image != "" {
		env.Probe.Image = o.Image
	}
	if o.PauseImage != "" {
		env.Probe.PauseImage = o.PauseImage
	}
	return env
}
