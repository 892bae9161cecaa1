// SPDX-License-Identifier: Apache-2.0

// Command fairlead-scheduler is a second kube-scheduler: Kubernetes' own, with Fairlead's plugins. It takes
// kube-scheduler's flags and configuration.
package main

import (
	"os"

	"k8s.io/component-base/cli"

	"github.com/fairlead-dev/fairlead/pkg/scheduler"
)

func main() {
	os.Exit(cli.Run(scheduler.NewCommand()))
}
