// Command agent is our tunnel agent as a program of its own, for benchmarks and
// black-box tests.
package main

import (
	"fmt"
	"os"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agentapp"
)

func main() {
	if err := agentapp.NewCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
