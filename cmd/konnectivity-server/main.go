// SPDX-License-Identifier: Apache-2.0

// Command konnectivity-server runs next to kube-apiserver and forwards its connections to the agents. It is a
// drop-in replacement of apiserver-network-proxy's proxy-server.
package main

import (
	"github.com/fairlead-dev/fairlead/pkg/daemon"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server/app"
)

func main() { daemon.Main(app.NewCommand(), nil) }
