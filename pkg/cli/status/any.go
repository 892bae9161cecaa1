// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/providers"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/overview"
)

// The extra format of tables.
const wide = "wide"

// belowLimit bounds each source of the lower part: the table of processes is already there.
const belowLimit = 3 * time.Second

// countEvery is how many looks share one count of Pods, with --watch and --wait: a count reads every Pod.
const countEvery = 10

// target is the cluster that a context of the kubeconfig names, "" for the current one.
func (o *options) target(ctx context.Context, name string) (observe.Target, error) {
	out := observe.Target{Brief: true, Bundle: o.bundle}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: name})
	raw, err := loader.RawConfig()
	if err != nil {
		return out, fmt.Errorf("read kubeconfig: %w: set the file with --kubeconfig", err)
	}
	out.Context = cmp.Or(name, raw.CurrentContext)
	if _, ok := raw.Contexts[out.Context]; !ok {
		err := clusterflags.NoContext(out.Context, raw, rules)
		return out, fmt.Errorf("%w\nhint: %s", err, check.HintOf(err))
	}
	if err := clusterflags.CheckProxyURL(raw, out.Context, ""); err != nil {
		return out, err
	}
	if out.Config, err = loader.ClientConfig(); err != nil {
		return out, fmt.Errorf("context %q: %w: see \"kubectl config view\"", out.Context, err)
	}
	set, err := providers.New(providers.Settings())
	if err != nil {
		return out, err
	}
	out.Env, err = set.CheckEnv(ctx, o.kubeconfig, out.Context)
	return out, err
}

// collect counts Pods at some looks only.
func (o *options) collect(ctx context.Context, target observe.Target) (*overview.Overview, error) {
	if o.looks%countEvery != 0 {
		target.Scheduled = o.counted
	}
	o.looks++
	s, err := observe.Collect(ctx, target)
	if err != nil {
		return nil, err
	}
	if o.counted = nil; s.Scheduled.Err == nil {
		o.counted = &s.Scheduled
	}
	return overview.Of(s), nil
}

// any looks at a cluster that a kubeconfig names.
func (o *options) any(ctx context.Context) (look, error) {
	target, err := o.target(ctx, o.context)
	if err != nil {
		return look{}, err
	}
	view, err := o.collect(ctx, target)
	if err != nil {
		return look{}, err
	}
	return look{report{Overview: view}, func(w io.Writer) error { return view.Write(w, o.style()) }, judge(view)}, nil
}

func judge(view *overview.Overview) error {
	switch view.State {
	case overview.Ready:
		return nil
	case overview.StateUnknown:
		return fmt.Errorf("%w: %s", ErrUnknown, view.Undecided())
	}
	return fmt.Errorf("%w: %s", ErrUnhealthy, view.Problems[0])
}

// report is what the command shows, in the same form for every cluster.
type report struct {
	// Components are those of a cluster of "fairlead up", as its provider describes them; absent for any other cluster.
	Components cluster.Status `json:"components,omitempty"`
	// Overview is absent if a cluster of "fairlead up" does not run.
	Overview *overview.Overview `json:"overview,omitempty"`
}

// overview is what the API server and the programs' metrics say of a local cluster. It is nil, with a warning and without error, if the kubeconfig
// does not have the cluster any more: the components are all that there is then.
func (o *options) overview(ctx context.Context, name string) (*overview.Overview, error) {
	target, err := o.target(ctx, cluster.ContextName(name))
	var gone *clusterflags.NoContextError
	switch {
	case errors.As(err, &gone):
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	case target.Env == nil:
		err = fmt.Errorf("context %q of the kubeconfig is for another cluster", target.Context)
	default:
		target.Limit = belowLimit
		return o.collect(ctx, target)
	}
	_, _ = fmt.Fprintf(o.streams.ErrOut, "Warning: only processes or nodes are shown: %v\n", err)
	return nil, nil //nolint:nilnil // nothing to show
}
