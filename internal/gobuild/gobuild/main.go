// SPDX-License-Identifier: Apache-2.0

// Command gobuild runs `go build` with the given arguments and shows how far it is, on the standard error:
//
//	go run ./internal/gobuild/gobuild -expect 'about 3 minutes' -- -o bin/ ./cmd/...
//
// It prints nothing if the build takes less than five seconds and succeeds.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/fairlead-dev/fairlead/internal/gobuild"
)

// every is how often a line is printed.
const every = 10 * time.Second

func main() {
	expect := flag.String("expect", "some minutes", "how long the build takes with empty caches")
	flag.Parse()
	began, next := time.Now(), time.Now().Add(5*time.Second)
	cmd := exec.Command("go", append([]string{"build", "-v"}, flag.Args()...)...) //nolint:noctx // ends with its terminal
	out, err := gobuild.Run(cmd, func(p gobuild.Progress) {
		now := time.Now()
		if now.Before(next) {
			return
		}
		if next.Sub(began) <= every {
			fmt.Fprintf(os.Stderr, "Building from source. With empty caches this takes %s on two cores.\n", *expect)
		}
		next = now.Add(every)
		fmt.Fprintf(os.Stderr, "  %3.0f s: %d packages compiled, %d modules downloaded\n", now.Sub(began).Seconds(), p.Compiled, p.Downloaded)
	})
	_, _ = os.Stderr.Write(out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "go build:", err)
		os.Exit(1)
	}
}
