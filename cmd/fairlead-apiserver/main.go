// SPDX-License-Identifier: Apache-2.0

// Command fairlead-apiserver is an extension API server that shows the state of the tunnel: `kubectl get tunnelagents`.
package main

import (
	"os"

	"k8s.io/component-base/cli"

	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/app"
)

func main() {
	os.Exit(cli.Run(app.NewCommand()))
}
