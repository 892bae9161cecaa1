// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/cli/bundleflag"
	"github.com/fairlead-dev/fairlead/pkg/cli/diff"
	"github.com/fairlead-dev/fairlead/pkg/cli/operatorflags"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// checkOperator refuses flags that --operator would ignore, or that do nothing without it.
func (o *Options) checkOperator(flags *pflag.FlagSet) error {
	if o.Operator && flags.Changed(bundleflag.Name) {
		return fmt.Errorf("--%s and --operator do not go together: install the operator, then run kubectl apply -f with the bundle", bundleflag.Name)
	}
	for _, name := range operatorflags.Names {
		if !o.Operator && flags.Changed(name) {
			return fmt.Errorf("--%s needs --operator", name)
		}
	}
	return nil
}

// runOperator installs the operator: definitions first, which the API server must serve before
// anything else is applied.
func (o *Options) runOperator(ctx context.Context) error {
	options := o.operator.Options()
	objects, err := operator.Objects(options)
	if err != nil {
		return err
	}
	if o.DryRun == dryClient {
		result, err := install.Offline(objects)
		if err != nil {
			return err
		}
		return o.Print(result, " (client dry run)")
	}
	target, err := o.Cluster.Connect(ctx)
	if err != nil {
		return err
	}
	if !o.Quiet {
		_, _ = fmt.Fprintf(o.Streams.ErrOut, "Installing the operator into %s\n", target)
	}
	findings, err := install.PreflightOperator(target.Config)
	if err != nil {
		return err
	}
	if err := o.Findings(findings); err != nil {
		return err
	}
	suffix := ""
	if o.DryRun == dryServer {
		suffix = " (server dry run)"
		if o.Output == "" && !o.Quiet {
			comparison, err := install.DiffOf(ctx, target.Config, install.Options{Party: install.Operator}, objects)
			if err != nil {
				return err
			}
			if err := diff.Print(o.Streams.Out, comparison); err != nil {
				return err
			}
		}
	}
	result, err := install.Apply(ctx, target.Config, objects, install.Options{
		DryRun: o.DryRun == dryServer, Force: o.Force, Wait: o.Wait, Timeout: o.Timeout, Party: install.Operator,
		Leases: install.LeasesOfOperator(options), Progress: o.Progress(),
	})
	return o.Done(ctx, result, suffix, err)
}
