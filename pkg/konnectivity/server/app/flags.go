// SPDX-License-Identifier: Apache-2.0

package app

import (
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// AddFlags adds upstream's flags, then our own.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.ServerCert, "server-cert", o.ServerCert, "File with the certificate for clients over TCP. Empty serves without TLS.")
	f.StringVar(&o.ServerKey, "server-key", o.ServerKey, "File with the key of --server-cert.")
	f.StringVar(&o.ServerCaCert, "server-ca-cert", o.ServerCaCert, "File with the CA certificates that verify client certificates of kube-apiserver. Empty accepts clients without a certificate.")
	f.StringVar(&o.ClusterCert, "cluster-cert", o.ClusterCert, "File with the certificate for agents. Empty serves without TLS.")
	f.StringVar(&o.ClusterKey, "cluster-key", o.ClusterKey, "File with the key of --cluster-cert.")
	f.StringVar(&o.ClusterCaCert, "cluster-ca-cert", o.ClusterCaCert, "File with the CA certificates that verify agents' client certificates. Empty accepts agents without a certificate.")
	f.StringVar(&o.Mode, "mode", o.Mode, "Protocol for clients: grpc or http-connect. It must match kube-apiserver's egress selector configuration.")
	f.StringVar(&o.UdsName, "uds-name", o.UdsName, "Path of the Unix socket for clients. Empty listens on --server-port instead.")
	f.BoolVar(&o.DeleteUDSFile, "delete-existing-uds-file", o.DeleteUDSFile, "Delete the socket at --uds-name before listening if it exists. The server refuses to delete a file that is not a socket, or a socket on which another server answers.")
	f.IntVar(&o.ServerPort, "server-port", o.ServerPort, "TCP port for clients. Must be 0 with --uds-name.")
	f.StringVar(&o.ServerBindAddress, "server-bind-address", o.ServerBindAddress, "Address for clients. Empty means all interfaces.")
	f.IntVar(&o.AgentPort, "agent-port", o.AgentPort, "Port for agents.")
	f.StringVar(&o.AgentBindAddress, "agent-bind-address", o.AgentBindAddress, "Address for agents. Empty means all interfaces.")
	f.IntVar(&o.AdminPort, "admin-port", o.AdminPort, "Port on which to serve the admin endpoints.")
	f.StringVar(&o.AdminBindAddress, "admin-bind-address", o.AdminBindAddress, "Address on which to serve the admin endpoints. Empty means localhost.")
	f.IntVar(&o.HealthPort, "health-port", o.HealthPort, "Port on which to serve health checks and metrics.")
	f.StringVar(&o.HealthBindAddress, "health-bind-address", o.HealthBindAddress, "Address on which to serve health checks and metrics. Empty means all interfaces.")
	f.DurationVar(&o.KeepaliveTime, "keepalive-time", o.KeepaliveTime, "Time without traffic after which the server pings an upstream agent, which then has 20s to answer. The server pings agents sooner when dials wait for them, and disconnects Fairlead's agents after 15s of silence.")
	f.DurationVar(&o.FrontendKeepaliveTime, "frontend-keepalive-time", o.FrontendKeepaliveTime, "Time without traffic after which the server pings a gRPC client.")
	f.BoolVar(&o.EnableProfiling, "enable-profiling", o.EnableProfiling, "Serve pprof profiles at /debug/pprof on the admin port.")
	f.BoolVar(&o.EnableContentionProfiling, "enable-contention-profiling", o.EnableContentionProfiling, "Serve profiles of lock contention at /debug/pprof/block on the admin port. Requires --enable-profiling.")
	f.StringVar(&o.ServerID, "server-id", o.ServerID, "Unique ID of this server. Defaults to the environment variable PROXY_SERVER_ID, or else to a generated UUID.")
	f.IntVar(&o.ServerCount, "server-count", o.ServerCount, "Number of konnectivity-servers in the cluster, which agents learn from each server.")
	f.StringVar(&o.AgentNamespace, "agent-namespace", o.AgentNamespace, "Namespace that agents' tokens must belong to. Requires --agent-service-account, --authentication-audience and --kubeconfig.")
	f.StringVar(&o.AgentServiceAccount, "agent-service-account", o.AgentServiceAccount, "ServiceAccount that agents' tokens must belong to. Requires --agent-namespace, --authentication-audience and --kubeconfig.")
	o.addMoreFlags(f)
	o.addOwnFlags(f)
}

func (o *Options) addMoreFlags(f *pflag.FlagSet) {
	f.StringVar(&o.KubeconfigPath, "kubeconfig", o.KubeconfigPath, "Kubeconfig file for reviewing agents' tokens and publishing Leases.")
	f.Float32Var(&o.KubeconfigQPS, "kubeconfig-qps", o.KubeconfigQPS, "Maximum rate of requests to kube-apiserver, per second.")
	f.IntVar(&o.KubeconfigBurst, "kubeconfig-burst", o.KubeconfigBurst, "Maximum burst of requests to kube-apiserver.")
	f.StringVar(&o.APIContentType, "kube-api-content-type", o.APIContentType, "Has no effect; accepted so that upstream's command lines work. The server sends JSON.")
	f.StringVar(&o.AuthenticationAudience, "authentication-audience", o.AuthenticationAudience, "Audience that agents' tokens must have. Requires --agent-namespace, --agent-service-account and --kubeconfig.")
	f.StringVar(&o.ProxyStrategies, "proxy-strategies", o.ProxyStrategies, "How to choose an agent for a dial: a comma-separated list of default (any agent), destHost (an agent whose identifiers name the destination) and defaultRoute (an agent with the default route). The server tries them in order.")
	f.StringSliceVar(&o.CipherSuites, "cipher-suites", o.CipherSuites, "Allowed cipher suites up to TLS 1.2. TLS 1.3 ignores them. Empty means Go's defaults.")
	f.StringVar(&o.TLSMinVersion, "tls-min-version", o.TLSMinVersion, "Minimum TLS version: VersionTLS10, VersionTLS11, VersionTLS12, or VersionTLS13. Empty means VersionTLS12.")
	f.IntVar(&o.XfrChannelSize, "xfr-channel-size", o.XfrChannelSize, "Has no effect; accepted so that upstream's command lines work. --link-window and --conn-buffer bound buffers in bytes.")
	f.BoolVar(&o.EnableLeaseController, "enable-lease-controller", o.EnableLeaseController, "Publish this server's Lease and delete expired Leases of other servers, so that agents can count the servers.")
	f.StringVar(&o.LeaseNamespace, "lease-namespace", o.LeaseNamespace, "Namespace of the servers' Leases.")
	f.StringVar(&o.LeaseLabel, "lease-label", o.LeaseLabel, "Label of the servers' Leases, as key=value.")
	f.DurationVar(&o.GracefulShutdownTimeout, "graceful-shutdown-timeout", o.GracefulShutdownTimeout, "Time limit for open connections after the first SIGTERM. 0 closes them immediately. Defaults to the value of the environment variable "+settings.DrainTimeout+".")
	f.DurationVar(&o.BackendDialTimeout, "backend-dial-timeout", o.BackendDialTimeout, "Time limit for an agent's answer to a dial. 0 means no limit; the server still forgets a dial after 35s, when its client has given up.")
	f.Bool("warn-on-channel-limit", true, "This behavior is now thread safe and always on. This flag will be removed in a future release.")
	_ = f.MarkDeprecated("warn-on-channel-limit", "This behavior is now thread safe and always on. This flag will be removed in a future release.")
}

func (o *Options) addOwnFlags(f *pflag.FlagSet) {
	o.Link.AddFlags(f, "agent", "client")
	f.StringVar(&o.TracingConfigFile, "tracing-config-file", o.TracingConfigFile, "File with a TracingConfiguration, as for kube-apiserver: the collector that gets spans of dials, and the share of dials to record. Empty turns tracing off.")
	f.StringSliceVar(&o.AllowedClientNames, "server-allowed-client-names", o.AllowedClientNames, "Common names of the client certificates that clients over TCP may use. Empty accepts every certificate that --server-ca-cert verifies. Defaults to the value of the environment variable "+settings.AllowedClientNames+".")
	f.IntVar(&o.LinksPerAgent, "links-per-agent", o.LinksPerAgent, "TCP connections that the server asks each agent to open. More than 1 helps when one core cannot carry an agent's traffic.")
	f.IntVar(&o.MaxPendingDials, "max-pending-dials", o.MaxPendingDials, "Maximum number of dials that wait for an answer.")
	f.IntVar(&o.MaxConnections, "max-connections", o.MaxConnections, "Maximum number of tunneled connections.")
	f.IntVar(&o.MaxPerAgent, "max-connections-per-agent", o.MaxPerAgent, "Maximum number of tunneled connections through each TCP connection of an agent.")
	f.IntVar(&o.MaxAgents, "max-agents", o.MaxAgents, "Maximum number of TCP connections of agents.")
	f.IntVar(&o.MaxPerOwner, "max-links-per-owner", o.MaxPerOwner, "Maximum number of TCP connections of all agents of one node, or of one common name with --agent-claims=certificate. 0 means four times --links-per-agent, at least 64.")
	f.DurationVar(&o.AgentWait, "agent-wait", o.AgentWait, "How long a dial waits for an agent when the server has just started, the last agent has just disconnected, or one is connecting. 0 fails the dial immediately.")
	f.StringVar(&o.AgentClaims, "agent-claims", o.AgentClaims, "How to verify agents' identifiers: any (do not verify), node (against the name and addresses of the node that the token is bound to), or certificate (against the names in the agent's certificate). Defaults to the value of the environment variable "+settings.AgentClaims+".")
	f.StringSliceVar(&o.DefaultRoute, "default-route-agents", o.DefaultRoute, "Nodes, or common names of certificates, that may claim the default route when --agent-claims is not any. * means every agent. Defaults to the value of the environment variable "+settings.DefaultRouteAgents+".")
	f.StringSliceVar(&o.NonNodeCIDRs, "non-node-cidrs", o.NonNodeCIDRs, "Address ranges that hold no node: those of Services, and those of Pods if Nodes have no spec.podCIDRs. With --agent-claims=node, no agent gets connections because it claims such an address. Defaults to the value of the environment variable "+settings.NonNodeCIDRs+".")
	f.DurationVar(&o.TokenReviewInterval, "token-review-interval", o.TokenReviewInterval, "Interval at which the server reviews the tokens and certificates of connected agents again. It drains an agent whose token is refused twice, or whose certificate a handshake would refuse. 0 disables this.")
	f.DurationVar(&o.TokenCache, "token-cache", o.TokenCache, "How long the server accepts a reviewed token without another review when its agent connects. 0 reviews the token at each connect.")
	f.StringVar(&o.StateSocket, "state-socket", o.StateSocket, "Unix socket on which the server shows its agents and connections, for fairlead-apiserver. Empty opens none.")
	f.IntVar(&o.StatePort, "state-port", o.StatePort, "Port on which the server shows its agents and connections with TLS, to the account of --state-service-account. 0 opens none. Defaults to the value of the environment variable "+settings.StatePort+".")
	f.StringVar(&o.StateBindAddress, "state-bind-address", o.StateBindAddress, "Address for --state-port. Empty means that of --agent-bind-address.")
	f.StringVar(&o.StateServiceAccount, "state-service-account", o.StateServiceAccount, "ServiceAccount, as NAMESPACE/NAME, whose tokens --state-port accepts. Defaults to the value of the environment variable "+settings.StateServiceAccount+".")
	f.StringVar(&o.StateAudience, "state-audience", o.StateAudience, "Audience of the tokens that --state-port accepts.")
	f.BoolVar(&o.StateConnect, "state-connect", o.StateConnect, "Open connections through agents for clients of --state-socket and --state-port, for fairlead-apiserver. Defaults to true if the environment variable "+settings.StateConnect+" is true.")
	f.StringSliceVar(&o.LocalDestinations, "local-destinations", o.LocalDestinations, "Destinations, each with a port, that the server connects to itself, without an agent: addresses, names or CIDRs, such as 10.96.0.20:443. Defaults to the value of the environment variable "+settings.LocalDestinations+".")
}
