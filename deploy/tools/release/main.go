// SPDX-License-Identifier: Apache-2.0

// Command release makes the files of a release: archives of static binaries, images for several architectures, a bill of
// materials and checksums. It needs no network and no container runtime. Run it by make:
//
//	make release           # into _output/release
//	make release-verify    # builds a second time, from a copy of the sources in another directory, and compares
//
// The same sources give the same files. Start at [Make].
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/interrupt"
)

func main() {
	o := Options{Programs: programs}
	targets := flag.String("targets", "linux/amd64,linux/arm64", "operating systems and architectures to build for, separated by commas")
	flag.StringVar(&o.Source, "source", "../..", "directory of the sources")
	flag.StringVar(&o.Version, "version", "", "version of the release")
	flag.StringVar(&o.LDFlags, "ldflags", "", "flags for Go's linker")
	flag.StringVar(&o.Out, "o", "../../_output/release", "directory for the files; what is in it is removed")
	compare := flag.String("compare", "", "directory of an earlier run: fail if any file differs")
	flag.Parse()
	o.Targets = strings.Split(*targets, ",")
	ctx, stop := interrupt.Context(context.Background())
	defer stop()
	err := Make(ctx, o)
	if err == nil && *compare != "" {
		err = Compare(o.Out, *compare)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// programs of a release, by the path of their package.
var programs = []string{"./cmd/fairlead", "./cmd/fairlead-apiserver", "./cmd/fairlead-operator", "./cmd/fairlead-scheduler", "./cmd/konnectivity-agent", "./cmd/konnectivity-server"}
