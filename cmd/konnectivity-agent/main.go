// SPDX-License-Identifier: Apache-2.0

// Command konnectivity-agent runs on nodes and carries the API server's connections to them. It is a drop-in
// replacement of apiserver-network-proxy's proxy-agent.
package main

import (
	"github.com/fairlead-dev/fairlead/pkg/daemon"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent/app"
)

func main() { daemon.Main(app.NewCommand(), nil) }
