// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/crd/migrate"
)

// migrateOptions are the flags of "fairlead crd migrate".
type migrateOptions struct {
	cluster clusterflags.Flags
	all     bool
	output  string
	settle  time.Duration
	method  string
	migrate.Options

	streams genericiooptions.IOStreams
}

const migrateLong = `Rewrite all stored objects of CustomResourceDefinitions in their storage version, so
that older versions can be removed. The command works for any definition:

 1. It rewrites every object: with the storage version migrator of
    kube-controller-manager where that runs, otherwise with an empty patch of each
    object.
 2. It removes managedFields of versions that are not served, because server-side apply
    fails on them once the version is gone.
 3. It leaves only the storage version in status.storedVersions.

The command refuses a definition with conversion strategy None whose storage version
lacks fields of a stored version: the objects would lose them for good.

If an object cannot be rewritten, or if the definition changes meanwhile, the command
keeps status.storedVersions and says why. You can interrupt the command and run it
again: the API server does not write objects again that are done.

Exit code: 0 done, 1 a migration failed, 2 wrong usage.`

func newMigrate(streams genericiooptions.IOStreams) *cobra.Command {
	o := &migrateOptions{cluster: clusterflags.New(), streams: streams}
	cmd := &cobra.Command{
		Use: "migrate NAME...", Short: "Rewrite stored objects in the storage version", Long: migrateLong,
		Example: "  fairlead crd migrate crontabs.stable.example.com --dry-run\n  fairlead crd migrate crontabs.stable.example.com\n  fairlead crd migrate --all",
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "migrate every definition that has an older version in status.storedVersions")
	f.BoolVar(&o.DryRun, "dry-run", false, "send all patches as dry runs and change nothing")
	f.BoolVar(&o.RewriteAll, "rewrite-all", false, "also rewrite the objects if status.storedVersions has only the storage version")
	f.BoolVar(&o.AcceptLoss, "accept-data-loss", false, "go on although conversion strategy None removes fields that the storage version lacks")
	f.StringVar(&o.method, "method", string(migrate.Auto), "who rewrites the objects: controller, patch, or auto (controller if it runs)")
	f.Float32Var(&o.QPS, "qps", migrate.DefaultQPS, "requests per second at most")
	f.Int64Var(&o.PageSize, "page-size", migrate.DefaultPageSize, "objects per list request")
	f.DurationVar(&o.settle, "settle", migrate.DefaultSettle, "wait for so long, so that all API servers know the storage version; there is no wait if the definition is older by a minute")
	f.StringVarP(&o.output, "output", "o", "", "json or yaml")
	o.cluster.AddFlags(f)
	return cmd
}

func (o *migrateOptions) complete(args []string) error {
	switch {
	case o.all && len(args) > 0:
		return errors.New("--all and names exclude each other: choose one")
	case !o.all && len(args) == 0:
		return errors.New("no definition given: name it (PLURAL.GROUP), or use --all")
	case o.output != "" && o.output != "json" && o.output != "yaml":
		return fmt.Errorf("--output %q: choose json or yaml", o.output)
	case o.QPS <= 0:
		return fmt.Errorf("--qps %v: choose a positive number", o.QPS)
	case o.PageSize <= 0:
		return fmt.Errorf("--page-size %d: choose a positive number", o.PageSize)
	}
	o.Method = migrate.Method(o.method)
	if o.Settle = o.settle; o.settle <= 0 {
		o.Settle = -1
	}
	return nil
}

func (o *migrateOptions) run(ctx context.Context, names []string) error {
	if err := o.complete(names); err != nil {
		return cannot(err)
	}
	o.Progress = func(r migrate.Result) {
		fmt.Fprintf(o.streams.ErrOut, "%s: %d objects seen, %d rewritten, %d failed\n", r.Name, r.Objects, r.Rewritten, len(r.Failed))
	}
	target, err := o.cluster.Connect(ctx)
	if err != nil {
		return err
	}
	m, err := migrate.New(target.Config, o.Options)
	if err != nil {
		return cannot(fmt.Errorf("--method: %w", err))
	}
	if o.all {
		if names, err = m.Pending(ctx); err != nil {
			return err
		}
	}
	results := []*migrate.Result{}
	var errs []error
	for _, name := range names {
		r, err := m.Run(ctx, name)
		results = append(results, r)
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	errs = append(errs, ui.Write(o.streams.Out, o.output, results, func(w io.Writer) error { return printMigrations(w, results, errs) }))
	return errors.Join(errs...)
}

func printMigrations(w io.Writer, results []*migrate.Result, errs []error) error {
	var b strings.Builder
	if len(results) == 0 {
		b.WriteString("All definitions have only their storage version in status.storedVersions: there is nothing to migrate.\n")
	}
	for i, r := range results {
		for _, note := range r.Notes {
			fmt.Fprintf(&b, "%s: note: %s\n", r.Name, note)
		}
		for _, f := range r.Failed {
			fmt.Fprintf(&b, "%s: %s: %s\n", r.Name, strings.TrimPrefix(f.Namespace+"/"+f.Name, "/"), f.Reason)
		}
		switch {
		case errs[i] != nil:
		case r.Method == "":
			fmt.Fprintf(&b, "%s: only %s is stored: there is nothing to migrate\n", r.Name, r.Storage)
		case r.DryRun:
			fmt.Fprintf(&b, "%s: %d objects would be rewritten in %s (dry run)\n", r.Name, r.Objects, r.Storage)
		case r.Method == migrate.Controller:
			fmt.Fprintf(&b, "%s: the controller rewrote all objects in %s; %d of %d had old managedFields; dropped %s\n", r.Name, r.Storage, r.Cleaned, r.Objects, list(r.Dropped))
		default:
			fmt.Fprintf(&b, "%s: rewrote %d of %d objects in %s; %d had old managedFields; dropped %s\n", r.Name, r.Rewritten, r.Objects, r.Storage, r.Cleaned, list(r.Dropped))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func list(versions []string) string {
	if len(versions) == 0 {
		return "no version"
	}
	return strings.Join(versions, ", ")
}
