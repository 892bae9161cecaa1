// SPDX-License-Identifier: Apache-2.0

// Command envoy stands in for the Envoy image that kind takes from a registry as the load balancer in front of several
// control planes. It reads the files that kind writes for Envoy and does what they ask for, and nothing else of Envoy's:
// see package balancer.
//
// Kind starts the container with bash, which the image does not have; called by that name this program becomes busybox's
// shell.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/fairlead-dev/fairlead/e2e/offline/nodeimage/cmd/envoy/balancer"
)

func main() {
	if filepath.Base(os.Args[0]) == "bash" {
		err := syscall.Exec("/bin/busybox", append([]string{"sh"}, os.Args[1:]...), os.Environ())
		fmt.Fprintln(os.Stderr, "bash: /bin/busybox:", err)
		os.Exit(126)
	}
	config := flag.String("c", "/home/envoy/envoy.yaml", "bootstrap configuration")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := balancer.Run(ctx, *config, log.New(os.Stdout, "", log.LstdFlags)); err != nil {
		fmt.Fprintln(os.Stderr, "envoy:", err)
		os.Exit(1)
	}
}
