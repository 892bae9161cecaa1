// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/interrupt"
)

func main() {
	b := builder{}
	flag.StringVar(&b.binDir, "bin", "bin", "directory with this project's programs")
	flag.StringVar(&b.mirror, "mirror", "", "Debian mirror (default: the one that apt is set to)")
	flag.BoolVar(&b.force, "force", false, "build all stages again, for newer Debian packages")
	flag.Parse()
	ctx, stop := interrupt.Context(context.Background())
	defer stop()
	b.progress = ui.NewProgress(os.Stderr, false)
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "node-image:", err)
		os.Exit(1)
	}
}
