// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/cli/bundleflag"
	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/providers"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/overview"
)

// The extra format of tables.
const wide = "wide"

// belowLimit bounds each source of the lower part: the table of processes is already there.
const belowLimit = 3 * time.Second

// refresh is the pause between two looks with --watch.
const refresh = 2 * time.Second

// target is a cluster that a kubeconfig names.
func (o *options) target(ctx context.Context) (observe.Target, error) {
	out := observe.Target{Brief: true}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context})
	raw, err := loader.RawConfig()
	if err != nil {
		return out, fmt.Errorf("read kubeconfig: %w: set the file with --kubeconfig", err)
	}
	out.Context = o.context
	if out.Context == "" {
		out.Context = raw.CurrentContext
	}
	if _, ok := raw.Contexts[out.Context]; !ok {
		err := clusterflags.NoContext(out.Context, raw, rules)
		return out, fmt.Errorf("%w\nhint: %s", err, check.HintOf(err))
	}
	if out.Config, err = loader.ClientConfig(); err != nil {
		return out, fmt.Errorf("context %q: %w: see \"kubectl config view\"", out.Context, err)
	}
	set, err := providers.New(providers.Settings{})
	if err != nil {
		return out, err
	}
	if out.Env, err = set.CheckEnv(ctx, o.kubeconfig, out.Context); err != nil {
		return out, err
	}
	if o.filename != "" {
		out.Bundle, err = bundleflag.Load(o.filename, o.streams.In, o.streams.ErrOut)
	}
	return out, err
}

// any shows a cluster that a kubeconfig names.
func (o *options) any(ctx context.Context) error {
	target, err := o.target(ctx)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(o.wait)
	for {
		s, err := observe.Collect(ctx, target)
		if err != nil {
			return err
		}
		view := overview.Of(s)
		if view.Healthy || !time.Now().Before(deadline) {
			if err := o.write(view, func(w io.Writer) error { return view.Write(w, o.output == wide) }); err != nil {
				return err
			}
			if !view.Healthy {
				return fmt.Errorf("%w: %s", ErrUnhealthy, view.Problems[0])
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// below adds what the API server and the programs' metrics say to the table of a local cluster.
func (o *options) below(ctx context.Context, name string, w io.Writer) error {
	local := *o
	local.context = cluster.ContextName(name)
	target, err := local.target(ctx)
	if err != nil || target.Env == nil {
		return nil //nolint:nilerr // the context is not in the kubeconfig: the table of processes is all that there is
	}
	target.Limit = belowLimit
	s, err := observe.Collect(ctx, target)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	_, _ = fmt.Fprintln(w)
	return overview.Of(s).Write(w, o.output == wide)
}

// write knows the format wide in addition to ui.Write's.
func (o *options) write(v any, human func(io.Writer) error) error {
	format := o.output
	if format == wide {
		format = ""
	}
	return ui.Write(o.streams.Out, format, v, human)
}

// watching repeats show until the user interrupts it.
func (o *options) watching(ctx context.Context, show func(context.Context) error) error {
	live := ui.IsTerminal(o.streams.Out)
	for first := true; ; first = false {
		if live {
			_, _ = fmt.Fprint(o.streams.Out, "\x1b[H\x1b[2J")
		} else if !first {
			_, _ = fmt.Fprintln(o.streams.Out, "---")
		}
		if err := show(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, ErrUnhealthy) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(refresh):
		}
	}
}
