// Command konnectivity-agent runs on nodes and carries the API server's connections to them. It is a drop-in
// replacement of apiserver-network-proxy's proxy-agent.
package main

import (
	"github.com/fairlead-dev/fairlead/pkg/daemon"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agentapp"
)

func main() { daemon.Main(agentapp.NewCommand(), nil) }
