// Command konnectivity-server runs beside kube-apiserver and hands its connections to the agents. It is a drop-in
// replacement of apiserver-network-proxy's proxy-server.
package main

import (
	"github.com/fairlead-dev/fairlead/pkg/daemon"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/serverapp"
)

func main() { daemon.Main(serverapp.NewCommand(), nil) }
