package app

import (
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"sigs.k8s.io/apiserver-network-proxy/cmd/server/app"
	"sigs.k8s.io/apiserver-network-proxy/cmd/server/app/options"

	"github.com/fairlead-dev/fairlead/pkg/daemon"
	"github.com/fairlead-dev/fairlead/pkg/version"
)

const (
	// ServerName is the name of the server's program.
	ServerName = "konnectivity-server"

	// immediately replaces a --graceful-shutdown-timeout of 0. The library takes 0 to mean its older way, in which it
	// waits without bound for open frontend connections; with any other value it enforces the timeout. This one is
	// long enough to close the listeners, which removes the socket file.
	immediately = 200 * time.Millisecond
	// leaseBound is for deleting the server's Lease after that, by an API server that may be going down as well.
	leaseBound = 4 * time.Second
)

// NewServerCommand returns the server's command. Call it once per process: klog's flags and the metrics are global.
func NewServerCommand() (*cobra.Command, error) {
	o := options.NewProxyRunOptions()
	cmd := app.NewProxyCommand(&app.Proxy{}, o)
	cmd.Use = ServerName
	cmd.SilenceErrors = true
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cmd.SilenceUsage = true
		return runServer(o)
	}
	if err := addFlags(cmd, o.Flags()); err != nil {
		return nil, err
	}
	return cmd, nil
}

func runServer(o *options.ProxyRunOptions) error {
	klog.InfoS("Starting", "program", ServerName, "version", version.Get().String())
	if o.GracefulShutdownTimeout == 0 {
		o.GracefulShutdownTimeout = immediately
	}
	signals := daemon.Notify()
	defer signals.Stop()
	err := daemon.Until(signals.Deadline(o.GracefulShutdownTimeout+leaseBound), func() error {
		return new(app.Proxy).Run(o, signals.First)
	})
	return stopped(ServerName, err)
}
