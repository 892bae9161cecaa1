// Command server is our tunnel server as a program of its own, for benchmarks and
// black-box tests.
package main

import (
	"fmt"
	"os"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/serverapp"
)

func main() {
	if err := serverapp.NewCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
