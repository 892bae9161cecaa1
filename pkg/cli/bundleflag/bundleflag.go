// SPDX-License-Identifier: Apache-2.0

// Package bundleflag is the flag --filename of all commands that take a bundle:
// [Add] defines it, [Load] reads what it names.
package bundleflag

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// What commands take without the flag.
const (
	Default   = "the default bundle"
	Installed = "the installed bundle, or the default bundle"
	Created   = `the bundle of a cluster of "fairlead up", or the default bundle`
)

// Name of the flag.
const Name = "filename"

// Add defines the flag; fallback says in the help what the command takes without it.
func Add(f *pflag.FlagSet, file *string, fallback string) {
	f.StringVarP(file, Name, "f", *file, `file with the bundle configuration; "-" reads standard input (default: `+fallback+")")
}

// Load reads a configuration: "-" is standard input, "" the default bundle. It writes
// warnings about a valid file to errOut.
func Load(file string, in io.Reader, errOut io.Writer) (*v1alpha1.Bundle, error) {
	var data []byte
	var err error
	switch file {
	case "":
		return bundle.Load(nil)
	case "-":
		data, err = io.ReadAll(in)
	default:
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("--filename: %w", err)
	}
	b, err := bundle.Load(data)
	if err != nil {
		return nil, fmt.Errorf("--filename %s: %w", file, err)
	}
	for _, warning := range bundle.Warnings(data) {
		_, _ = fmt.Fprintf(errOut, "Warning: --filename %s: %s\n", file, warning)
	}
	return b, nil
}
