// SPDX-License-Identifier: Apache-2.0

// Package crd is "fairlead crd": tools for authors and administrators of
// CustomResourceDefinitions. Each subcommand has a file of its own.
package crd

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/crd/manifest"
)

const long = `Check CustomResourceDefinitions and their objects without a cluster, test conversion
webhooks, and migrate stored objects to the storage version.

The commands judge with the code of kube-apiserver. Exit code: 0 nothing found,
1 something found or failed, 2 the command cannot do its work.`

// NewCommand makes the command with its subcommands.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "crd", Short: "Check CustomResourceDefinitions and migrate their objects", Long: long, GroupID: "bundle", Args: cobra.ArbitraryArgs,
		Example: "  fairlead crd lint crd.yaml\n  fairlead crd migrate --all",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &Error{2, fmt.Errorf("unknown command %q: see \"%s --help\"", args[0], cmd.CommandPath())}
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(newLint(streams), newValidate(streams), newMigrate(streams), newConvert(streams))
	for _, sub := range cmd.Commands() {
		sub.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
			return &Error{2, fmt.Errorf("%w: see \"%s --help\"", err, c.CommandPath())}
		})
	}
	return cmd
}

// Error carries the exit code.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// ExitCode is for the main function.
func (e *Error) ExitCode() int { return e.Code }

// cannot makes an error of something that keeps a command from its work.
func cannot(err error) error {
	if err == nil {
		return nil
	}
	return &Error{2, err}
}

// load reads the documents of all paths; there must be one.
func load(paths []string, recursive bool, stdin io.Reader) ([]*manifest.Document, error) {
	if len(paths) == 0 {
		return nil, errors.New(`no file given: name files or directories, or "-" for standard input`)
	}
	docs, err := manifest.Load(paths, recursive, stdin)
	if err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, fmt.Errorf("%v: no document found: name files with Kubernetes objects", paths)
	}
	return docs, nil
}

// definitions reads the definitions of files, and passes over other objects.
func definitions(paths []string, recursive bool, stdin io.Reader) ([]*crd.Definition, error) {
	docs, err := load(paths, recursive, stdin)
	if err != nil {
		return nil, err
	}
	var all []*crd.Definition
	var errs []error
	for _, d := range docs {
		if d.Err == nil && d.GroupKind() != crd.GroupKind {
			continue
		}
		definition, err := crd.Decode(d)
		errs = append(errs, err)
		if err == nil {
			all = append(all, definition)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%v: no CustomResourceDefinition found in %d documents", paths, len(docs))
	}
	return all, nil
}
