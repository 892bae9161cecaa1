// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/cmdutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// AddFlags adds upstream's flags, then our own.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.AgentCert, "agent-cert", o.AgentCert, "File with the client certificate that the agent shows to the server. Empty means no client certificate.")
	f.StringVar(&o.AgentKey, "agent-key", o.AgentKey, "File with the key of --agent-cert.")
	f.StringVar(&o.CaCert, "ca-cert", o.CaCert, "File with the CA certificates that verify the server. Empty means the system's CAs.")
	f.StringVar(&o.ProxyServerHost, "proxy-server-host", o.ProxyServerHost, "Host name or address of the konnectivity-server.")
	f.IntVar(&o.ProxyServerPort, "proxy-server-port", o.ProxyServerPort, "Port of the konnectivity-server for agents.")
	f.StringSliceVar(&o.AlpnProtos, "alpn-proto", o.AlpnProtos, "Additional ALPN protocols to offer to the server, for a load balancer that routes by them.")
	f.StringVar(&o.HealthServerHost, "health-server-host", o.HealthServerHost, "Address on which to serve health checks and metrics, without a port. Empty means all interfaces.")
	f.IntVar(&o.HealthServerPort, "health-server-port", o.HealthServerPort, "Port on which to serve health checks and metrics.")
	f.IntVar(&o.AdminServerPort, "admin-server-port", o.AdminServerPort, "Port on which to serve the admin endpoints.")
	f.StringVar(&o.AdminBindAddress, "admin-bind-address", o.AdminBindAddress, "Address on which to serve the admin endpoints. Empty means all interfaces.")
	f.BoolVar(&o.EnableProfiling, "enable-profiling", o.EnableProfiling, "Serve pprof profiles at /debug/pprof on the admin port.")
	f.BoolVar(&o.EnableContentionProfiling, "enable-contention-profiling", o.EnableContentionProfiling, "Serve profiles of lock contention at /debug/pprof/block on the admin port. Requires --enable-profiling.")
	f.StringVar(&o.Agent.AgentID, "agent-id", o.Agent.AgentID, "Unique ID of this agent. Defaults to the environment variable PROXY_AGENT_ID, or else to a generated UUID.")
	f.DurationVar(&o.Agent.SyncInterval, "sync-interval", o.Agent.SyncInterval, "Initial interval between checks that the agent is connected to every server.")
	f.DurationVar(&o.ProbeInterval, "probe-interval", o.ProbeInterval, "Has no effect; accepted so that upstream's command lines work. The agent notices the loss of a connection immediately.")
	f.DurationVar(&o.Agent.SyncIntervalCap, "sync-interval-cap", o.Agent.SyncIntervalCap, "Maximum interval between these checks while the agent backs off because it cannot connect.")
	f.DurationVar(&o.Agent.KeepaliveTime, "keepalive-time", o.Agent.KeepaliveTime, "Time without traffic after which the agent pings an upstream server. The agent disconnects from Fairlead's server after 15s of silence.")
	f.StringVar(&o.ServiceAccountTokenPath, "service-account-token-path", o.ServiceAccountTokenPath, "File with the ServiceAccount token that the agent sends to the server. Empty sends none.")
	f.StringVar(&o.Agent.Identifiers, "agent-identifiers", o.Agent.Identifiers, "Destinations that the server prefers this agent for, URL-encoded: host=NAME, ipv4=ADDRESS, ipv6=ADDRESS and default-route=true, joined by &. Example: host=node-1&ipv4=10.0.0.1.")
	f.BoolVar(&o.WarnOnChannelLimit, "warn-on-channel-limit", o.WarnOnChannelLimit, "Has no effect; accepted so that upstream's command lines work. There are no channels that can be full.")
	f.BoolVar(&o.Agent.SyncForever, "sync-forever", o.Agent.SyncForever, "Continue to look for servers after the agent is connected to all of them, so that it follows changes of the server count.")
	f.IntVar(&o.XfrChannelSize, "xfr-channel-size", o.XfrChannelSize, "Has no effect; accepted so that upstream's command lines work. --link-window and --conn-buffer bound buffers in bytes.")
	f.BoolVar(&o.CountServerLeases, "count-server-leases", o.CountServerLeases, "Count the servers by their Leases. Requires access to the Kubernetes API.")
	f.StringVar(&o.LeaseNamespace, "lease-namespace", o.LeaseNamespace, "Namespace of the servers' Leases.")
	f.StringVar(&o.LeaseLabel, "lease-label", o.LeaseLabel, "Label selector of the servers' Leases.")
	f.StringVar(&o.ServerCountSource, "server-count-source", o.ServerCountSource, "How to combine the server count of the Leases and the one that servers report: default (use only one source: Leases if --count-server-leases is set, else servers) or max (use the larger).")
	f.StringVar(&o.KubeconfigPath, "kubeconfig", o.KubeconfigPath, "Kubeconfig file for reading Leases. Empty means the Pod's ServiceAccount.")
	f.StringVar(&o.APIContentType, "kube-api-content-type", o.APIContentType, "Has no effect; accepted so that upstream's command lines work. The agent sends JSON.")
	o.addOwnFlags(f)
}

func (o *Options) addOwnFlags(f *pflag.FlagSet) {
	o.Link.AddFlags(f, "server", "destination")
	f.StringVar(&o.TracingConfigFile, "tracing-config-file", o.TracingConfigFile, "File with a TracingConfiguration, as for kube-apiserver: the collector that gets spans of dials, and the share of dials to record. Empty turns tracing off.")
	f.IntVar(&o.Agent.Links, "links", o.Agent.Links, "TCP connections to each server. 0 uses the number that the server advertises.")
	f.DurationVar(&o.Agent.DialTimeout, "dial-timeout", o.Agent.DialTimeout, "Time limit for connecting to a destination, including DNS.")
	f.IntVar(&o.Agent.MaxDials, "max-pending-dials", o.Agent.MaxDials, "Maximum number of dials to destinations in progress.")
	f.IntVar(&o.Agent.MaxConns, "max-connections", o.Agent.MaxConns, "Maximum number of connections to destinations.")
	f.StringVar(&o.AllowDestinations, "allow-destinations", o.AllowDestinations, "Allowed destinations: a comma-separated list of CIDRs, addresses, or host names, each with an optional port. Empty allows every destination that --deny-destinations does not deny.")
	f.StringVar(&o.DenyDestinations, "deny-destinations", o.DenyDestinations, "Denied destinations, in the form of --allow-destinations. Rules for all loopback or all link-local addresses do not apply to the addresses and hosts in --agent-identifiers. Empty denies nothing, as upstream's agent does.")
	f.DurationVar(&o.GracefulShutdownTimeout, "graceful-shutdown-timeout", o.GracefulShutdownTimeout, "Time limit for open connections after the first SIGTERM. The agent exits when the last one ends. Defaults to the value of the environment variable "+settings.DrainTimeout+".")
}

func (o *Options) validateOwn() error {
	if o.graceErr != nil {
		return o.graceErr
	}
	if err := o.Link.Validate(); err != nil {
		return err
	}
	if o.Agent.Links < 0 || o.GracefulShutdownTimeout < 0 {
		return errors.New("--links and --graceful-shutdown-timeout must not be negative")
	}
	if o.Agent.Links > link.MaxLinks {
		return fmt.Errorf("--links must be at most %d", link.MaxLinks)
	}
	if err := cmdutil.AtLeastOne(map[string]int{"max-pending-dials": o.Agent.MaxDials, "max-connections": o.Agent.MaxConns}); err != nil {
		return err
	}
	if len(o.Agent.AgentID) > link.MaxAgentID {
		return fmt.Errorf("--agent-id has %d bytes and may have %d", len(o.Agent.AgentID), link.MaxAgentID)
	}
	if o.Agent.DialTimeout <= 0 {
		return fmt.Errorf("--dial-timeout must be more than 0, not %v", o.Agent.DialTimeout)
	}
	_, err := o.policy()
	return err
}
