package app

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"sigs.k8s.io/apiserver-network-proxy/cmd/agent/app"
	"sigs.k8s.io/apiserver-network-proxy/cmd/agent/app/options"

	"github.com/fairlead-dev/fairlead/pkg/daemon"
	"github.com/fairlead-dev/fairlead/pkg/version"
)

const (
	// AgentName is the name of the agent's program.
	AgentName = "konnectivity-agent"
	// DefaultDrainTimeout is how long a draining agent waits for its open connections.
	DefaultDrainTimeout = 5 * time.Second
	// DrainTimeoutVariable is the environment variable that overrides DefaultDrainTimeout; its value is a duration
	// like "20s". Keep it some seconds below the Pod's terminationGracePeriodSeconds.
	DrainTimeoutVariable = "FAIRLEAD_DRAIN_TIMEOUT"

	// drainSettle lets a dial that the server sent before it knew of the drain become a connection.
	drainSettle   = 300 * time.Millisecond
	drainInterval = 50 * time.Millisecond
	// stopBound is what is left to the library for closing its listeners and streams.
	stopBound = time.Second
	// openConnectionsMetric is the library's gauge of connections that the agent carries.
	openConnectionsMetric = "konnectivity_network_proxy_agent_open_endpoint_connections"
)

// ErrDrainTimeout says that the value of DrainTimeoutVariable is not a duration of zero or more.
var ErrDrainTimeout = errors.New("invalid drain timeout")

// NewAgentCommand returns the agent's command. Call it once per process: klog's flags and the metrics are global.
func NewAgentCommand() (*cobra.Command, error) {
	o := options.NewGrpcProxyAgentOptions()
	cmd := app.NewAgentCommand(&app.Agent{}, o)
	cmd.Use = AgentName
	cmd.SilenceErrors = true
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cmd.SilenceUsage = true
		return runAgent(o)
	}
	if err := addFlags(cmd, o.Flags()); err != nil {
		return nil, err
	}
	return cmd, nil
}

func runAgent(o *options.GrpcProxyAgentOptions) error {
	timeout, err := drainTimeout(os.Getenv(DrainTimeoutVariable))
	if err != nil {
		return err
	}
	klog.InfoS("Starting", "program", AgentName, "version", version.Get().String())
	signals := daemon.Notify()
	defer signals.Stop()
	stop := daemon.Drained(signals, daemon.Drain{
		Open:     openConnections,
		Settle:   drainSettle,
		Timeout:  timeout,
		Interval: drainInterval,
	})
	err = daemon.Until(daemon.After(stop, stopBound), func() error {
		return new(app.Agent).Run(o, signals.First, stop)
	})
	return stopped(AgentName, err)
}

func drainTimeout(value string) (time.Duration, error) {
	if value == "" {
		return DefaultDrainTimeout, nil
	}
	timeout, err := time.ParseDuration(value)
	if err != nil || timeout < 0 {
		return 0, fmt.Errorf("%w: %s=%q; use a duration like 20s", ErrDrainTimeout, DrainTimeoutVariable, value)
	}
	return timeout, nil
}

// openConnections reads the library's gauge: the library has the number nowhere else to see.
func openConnections() int {
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		klog.ErrorS(err, "Could not read all metrics; the drain may end early")
	}
	return gauge(families, openConnectionsMetric)
}

func gauge(families []*dto.MetricFamily, name string) int {
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			sum += metric.GetGauge().GetValue()
		}
	}
	return int(sum)
}

// stopped turns the end of a program that was asked to stop into its exit: having been left behind is no failure.
func stopped(name string, err error) error {
	if errors.Is(err, daemon.ErrForced) {
		klog.InfoS("Stopped with work still open", "program", name)
		return nil
	}
	return err
}
