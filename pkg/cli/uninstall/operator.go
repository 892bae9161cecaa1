// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// checkOperator checks the flags that belong to --operator.
func (o *Options) checkOperator(customResources bool) error {
	if customResources && !o.Operator {
		return errors.New("--custom-resources needs --operator")
	}
	if !slices.Contains([]string{refuse, keep, del}, o.CustomResources) {
		return fmt.Errorf("--custom-resources %q: choose refuse, keep or delete", o.CustomResources)
	}
	return nil
}

func (o *Options) options(dryRun bool) install.UninstallOptions {
	out := install.UninstallOptions{DryRun: dryRun, Timeout: o.Timeout, KeepTunnel: o.KeepTunnel()}
	if o.Operator { // the tunnel does not need it
		out.Party, out.KeepDefinitions, out.KeepTunnel = install.Operator, o.CustomResources == keep, false
	}
	if !dryRun {
		out.Wait, out.Progress = o.Wait, o.Progress()
	}
	return out
}

// customObjects ends the command if it would delete objects of users, and names those that it
// deletes because it was told to.
func (o *Options) customObjects(ctx context.Context, target clusterflags.Cluster) error {
	switch o.CustomResources {
	case refuse:
		// To ignore this finding would be --custom-resources=delete.
		return o.refused(install.PreflightUninstallOperator(ctx, target.Config))
	case del:
		if err := o.refused(install.PreflightDeleteCustomObjects(ctx, target.Config)); err != nil {
			return err
		}
		objects, err := install.CustomObjects(ctx, target.Config)
		if err != nil {
			return err
		}
		if len(objects) > 0 {
			_, _ = fmt.Fprintf(o.Streams.ErrOut, "These objects go with their definitions: %s\n", strings.Join(objects, ", "))
		}
	}
	return nil
}

// refused ends the command for findings that cannot be ignored.
func (o *Options) refused(findings []install.Finding, err error) error {
	if err != nil {
		return err
	}
	if err := clusterflags.Findings(o.Streams.ErrOut, findings, nil); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	return nil
}

// pools deletes the agents of TunnelPools, which are gone.
func (o *Options) pools(ctx context.Context, target clusterflags.Cluster, result *install.Result) error {
	more, err := install.Uninstall(ctx, target.Config, install.UninstallOptions{Party: install.Pools, Wait: o.Wait, Timeout: o.Timeout, Progress: o.Progress()})
	result.Objects = append(result.Objects, more.Objects...)
	return err
}
