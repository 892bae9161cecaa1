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

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/interrupt"
)

func main() {
	o := Options{Programs: programs, Clients: clients, Extra: extra, ImageTag: v1alpha1.ImageTag, Chart: "deploy/helm/fairlead/Chart.yaml"}
	targets := flag.String("targets", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "operating systems and architectures to build for, separated by commas")
	flag.StringVar(&o.Source, "source", "../..", "directory of the sources")
	flag.StringVar(&o.Version, "version", "", "version of the release")
	flag.StringVar(&o.LDFlags, "ldflags", "", "flags for Go's linker")
	flag.StringVar(&o.Out, "o", "../../_output/release", "directory for the files; what is in it is removed")
	compare := flag.String("compare", "", "directory of an earlier run: compile everything again, and fail if any file differs")
	flag.Parse()
	o.Targets, o.Fresh = strings.Split(*targets, ","), *compare != ""
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

// programs of a release for Linux, by the path of their package. Other systems get the command that manages clusters elsewhere.
var programs = []string{"./cmd/fairlead", "./cmd/fairlead-apiserver", "./cmd/fairlead-operator", "./cmd/fairlead-scheduler", "./cmd/konnectivity-agent", "./cmd/konnectivity-server"}

var clients = []string{"./cmd/fairlead"}

// extra is what each archive has in addition to the programs.
var extra = map[string]string{
	"LICENSE": "LICENSE", "README.md": "README.md", "CHANGELOG.md": "CHANGELOG.md",
	"docs/man": "man", "deploy/helm/fairlead": "chart", "deploy/monitoring": "monitoring",
}
