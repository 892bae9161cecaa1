package serverapp

import (
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/variables"
)

// AddFlags adds the flags of the reference server, then our own.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.ServerCert, "server-cert", o.ServerCert, "If non-empty secure communication with this cert.")
	f.StringVar(&o.ServerKey, "server-key", o.ServerKey, "If non-empty secure communication with this key.")
	f.StringVar(&o.ServerCaCert, "server-ca-cert", o.ServerCaCert, "If non-empty the CA we use to validate KAS clients.")
	f.StringVar(&o.ClusterCert, "cluster-cert", o.ClusterCert, "If non-empty secure communication with this cert.")
	f.StringVar(&o.ClusterKey, "cluster-key", o.ClusterKey, "If non-empty secure communication with this key.")
	f.StringVar(&o.ClusterCaCert, "cluster-ca-cert", o.ClusterCaCert, "If non-empty the CA we use to validate Agent clients.")
	f.StringVar(&o.Mode, "mode", o.Mode, "mode can be either 'grpc' or 'http-connect'.")
	f.StringVar(&o.UdsName, "uds-name", o.UdsName, "uds-name should be empty for TCP traffic. For UDS set to its name.")
	f.BoolVar(&o.DeleteUDSFile, "delete-existing-uds-file", o.DeleteUDSFile, "If true and if file UdsName already exists, delete the file before listen on that UDS file. A file that is no socket, or a socket on which a server answers, is refused.")
	f.IntVar(&o.ServerPort, "server-port", o.ServerPort, "Port we listen for server connections on. Set to 0 for UDS.")
	f.StringVar(&o.ServerBindAddress, "server-bind-address", o.ServerBindAddress, "Bind address for server connections. If empty, we will bind to all interfaces.")
	f.IntVar(&o.AgentPort, "agent-port", o.AgentPort, "Port we listen for agent connections on.")
	f.StringVar(&o.AgentBindAddress, "agent-bind-address", o.AgentBindAddress, "Bind address for agent connections. If empty, we will bind to all interfaces.")
	f.IntVar(&o.AdminPort, "admin-port", o.AdminPort, "Port we listen for admin connections on.")
	f.StringVar(&o.AdminBindAddress, "admin-bind-address", o.AdminBindAddress, "Bind address for admin connections. If empty, we will bind to localhost.")
	f.IntVar(&o.HealthPort, "health-port", o.HealthPort, "Port we listen for health connections on.")
	f.StringVar(&o.HealthBindAddress, "health-bind-address", o.HealthBindAddress, "Bind address for health connections. If empty, we will bind to all interfaces.")
	f.DurationVar(&o.KeepaliveTime, "keepalive-time", o.KeepaliveTime, "Time for gRPC agent server keepalive: after so long a silence an upstream agent has 20 s to answer a ping. For new dials agents are pinged sooner than that, and our own are given up within 20 s.")
	f.DurationVar(&o.FrontendKeepaliveTime, "frontend-keepalive-time", o.FrontendKeepaliveTime, "Time for gRPC frontend server keepalive.")
	f.BoolVar(&o.EnableProfiling, "enable-profiling", o.EnableProfiling, "enable pprof at host:admin-port/debug/pprof")
	f.BoolVar(&o.EnableContentionProfiling, "enable-contention-profiling", o.EnableContentionProfiling, "enable contention profiling at host:admin-port/debug/pprof/block. \"--enable-profiling\" must also be set.")
	f.StringVar(&o.ServerID, "server-id", o.ServerID, "The unique ID of this server. Can also be set by the 'PROXY_SERVER_ID' environment variable.")
	f.IntVar(&o.ServerCount, "server-count", o.ServerCount, "The number of proxy server instances, should be 1 unless it is an HA server.")
	f.StringVar(&o.AgentNamespace, "agent-namespace", o.AgentNamespace, "Expected agent's namespace during agent authentication (used with agent-service-account, authentication-audience, kubeconfig).")
	f.StringVar(&o.AgentServiceAccount, "agent-service-account", o.AgentServiceAccount, "Expected agent's service account during agent authentication (used with agent-namespace, authentication-audience, kubeconfig).")
	o.addMoreFlags(f)
	o.addOwnFlags(f)
}

func (o *Options) addMoreFlags(f *pflag.FlagSet) {
	f.StringVar(&o.KubeconfigPath, "kubeconfig", o.KubeconfigPath, "absolute path to the kubeconfig file (used with agent-namespace, agent-service-account, authentication-audience).")
	f.Float32Var(&o.KubeconfigQPS, "kubeconfig-qps", o.KubeconfigQPS, "Maximum client QPS (proxy server uses this client to authenticate agent tokens).")
	f.IntVar(&o.KubeconfigBurst, "kubeconfig-burst", o.KubeconfigBurst, "Maximum client burst (proxy server uses this client to authenticate agent tokens).")
	f.StringVar(&o.APIContentType, "kube-api-content-type", o.APIContentType, "Content type of requests sent to apiserver. Accepted for compatibility; requests are JSON.")
	f.StringVar(&o.AuthenticationAudience, "authentication-audience", o.AuthenticationAudience, "Expected agent's token authentication audience (used with agent-namespace, agent-service-account, kubeconfig).")
	f.StringVar(&o.ProxyStrategies, "proxy-strategies", o.ProxyStrategies, "The list of proxy strategies used by the server to pick an agent/tunnel, available strategies are: default, destHost, defaultRoute.")
	f.StringSliceVar(&o.CipherSuites, "cipher-suites", o.CipherSuites, "The comma separated list of allowed cipher suites. Has no effect on TLS1.3. Empty means allow default list.")
	f.StringVar(&o.TLSMinVersion, "tls-min-version", o.TLSMinVersion, "Minimum TLS version for server connections. Accepted values: VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13. Empty defaults to VersionTLS12.")
	f.IntVar(&o.XfrChannelSize, "xfr-channel-size", o.XfrChannelSize, "Accepted for compatibility; buffers are bounded in bytes by --link-window and --conn-buffer.")
	f.BoolVar(&o.EnableLeaseController, "enable-lease-controller", o.EnableLeaseController, "Enable lease controller to publish and garbage collect proxy server leases.")
	f.StringVar(&o.LeaseNamespace, "lease-namespace", o.LeaseNamespace, "The namespace where lease objects are managed by the controller.")
	f.StringVar(&o.LeaseLabel, "lease-label", o.LeaseLabel, "The labels on which the lease objects are managed.")
	f.DurationVar(&o.GracefulShutdownTimeout, "graceful-shutdown-timeout", o.GracefulShutdownTimeout, "Timeout duration for graceful shutdown of the server. The server will wait for active connections to close before forcefully terminating. Set to 0 to disable graceful shutdown (default: 0).")
	f.DurationVar(&o.BackendDialTimeout, "backend-dial-timeout", o.BackendDialTimeout, "Timeout duration for sending DIAL_REQ packets to backend agent streams and waiting for DIAL_RSP. Set to 0 to disable timeout (default: 0); a dial is then still forgotten after 35 s, when its client has given up.")
	f.Bool("warn-on-channel-limit", true, "This behavior is now thread safe and always on. This flag will be removed in a future release.")
	_ = f.MarkDeprecated("warn-on-channel-limit", "This behavior is now thread safe and always on. This flag will be removed in a future release.")
}

func (o *Options) addOwnFlags(f *pflag.FlagSet) {
	o.Link.AddFlags(f, "agent", "client")
	f.IntVar(&o.LinksPerAgent, "links-per-agent", o.LinksPerAgent, "TCP connections that each agent holds; more than 1 helps where one core cannot carry an agent's traffic.")
	f.IntVar(&o.MaxPendingDials, "max-pending-dials", o.MaxPendingDials, "Dials without an answer at a time.")
	f.IntVar(&o.MaxConnections, "max-connections", o.MaxConnections, "Tunnelled connections at a time.")
	f.IntVar(&o.MaxPerAgent, "max-connections-per-agent", o.MaxPerAgent, "Tunnelled connections at a time through one agent, counted on each of its TCP connections.")
	f.IntVar(&o.MaxAgents, "max-agents", o.MaxAgents, "Connections of agents at a time.")
	f.DurationVar(&o.AgentWait, "agent-wait", o.AgentWait, "How long a dial waits for an agent if the server has just started, the last agent has just gone or one is being let in. 0 fails at once.")
	f.StringVar(&o.AgentClaims, "agent-claims", o.AgentClaims, "What agents' identifiers are held against: any accepts all; node wants them to be the name or addresses of the node that the token is bound to; certificate wants them to be names in the agent's certificate. The default can be set by the '"+variables.AgentClaims+"' environment variable.")
	f.StringSliceVar(&o.DefaultRoute, "default-route-agents", o.DefaultRoute, "Nodes, or common names of certificates, that may claim the default route when --agent-claims is not any; * is every agent. The default can be set by the '"+variables.DefaultRouteAgents+"' environment variable.")
	f.DurationVar(&o.TokenCache, "token-cache", o.TokenCache, "How long an accepted token is not reviewed again. 0 reviews at each connect.")
}
