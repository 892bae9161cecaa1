// SPDX-License-Identifier: Apache-2.0

// Command fairlead brings up clusters with a second scheduler and a Konnectivity
// tunnel, renders what they need, and verifies that they work. See pkg/cli.
package main

import (
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli"
)

func main() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(cli.Main(os.Args[1:], streams))
}
