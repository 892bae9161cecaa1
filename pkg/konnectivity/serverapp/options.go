// Package serverapp is the command konnectivity-server: the flags of the
// reference server with the same meaning and defaults, some of our own, and what
// they turn on.
package serverapp

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/kube"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// Options are the flags.
type Options struct {
	ServerCert, ServerKey, ServerCaCert    string
	ClusterCert, ClusterKey, ClusterCaCert string
	Mode                                   string
	UdsName                                string
	DeleteUDSFile                          bool
	ServerPort                             int
	ServerBindAddress                      string
	AgentPort                              int
	AgentBindAddress                       string
	AdminPort                              int
	AdminBindAddress                       string
	HealthPort                             int
	HealthBindAddress                      string
	KeepaliveTime, FrontendKeepaliveTime   time.Duration
	EnableProfiling                        bool
	EnableContentionProfiling              bool
	ServerID                               string
	ServerCount                            int
	AgentNamespace, AgentServiceAccount    string
	AuthenticationAudience                 string
	KubeconfigPath                         string
	KubeconfigQPS                          float32
	KubeconfigBurst                        int
	APIContentType                         string
	ProxyStrategies                        string
	CipherSuites                           []string
	TLSMinVersion                          string
	XfrChannelSize                         int
	EnableLeaseController                  bool
	LeaseNamespace, LeaseLabel             string
	GracefulShutdownTimeout                time.Duration
	BackendDialTimeout                     time.Duration

	// Our own.
	Link            string
	LinkWindow      int
	LinkMaxWindow   int
	LinkBudget      int64
	LinksPerAgent   int
	SlowReceivers   string
	ConnBuffer      int
	MaxPendingDials int
	MaxConnections  int
	MaxAgents       int
	AgentWait       time.Duration
	TokenCache      time.Duration
	AgentClaims     string
	DefaultRoute    []string
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		Mode: "grpc", DeleteUDSFile: true, ServerPort: 8090, AgentPort: 8091, HealthPort: 8092, AdminPort: 8095,
		AdminBindAddress: "127.0.0.1", KeepaliveTime: time.Hour, FrontendKeepaliveTime: time.Hour,
		ServerID: defaultID("PROXY_SERVER_ID"), ServerCount: 1, APIContentType: "application/vnd.kubernetes.protobuf",
		ProxyStrategies: "default", XfrChannelSize: 10, LeaseNamespace: "kube-system", LeaseLabel: "k8s-app=konnectivity-server",
		Link: "auto", LinkWindow: 256 << 10, LinkMaxWindow: 4 << 20, LinkBudget: 32 << 20, LinksPerAgent: 1,
		SlowReceivers: "reset", ConnBuffer: 16 << 20, MaxPendingDials: 10_000, MaxConnections: 200_000, MaxAgents: 20_000,
		AgentWait: 5 * time.Second, TokenCache: time.Minute, AgentClaims: "any",
	}
}

// defaultID takes the ID from the environment or makes a random UUID.
func defaultID(env string) string {
	if id := os.Getenv(env); id != "" {
		return id
	}
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

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
	f.DurationVar(&o.KeepaliveTime, "keepalive-time", o.KeepaliveTime, "Time for gRPC agent server keepalive.")
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
	f.StringVar(&o.Link, "link", o.Link, "Protocol with agents: auto prefers our own and falls back to the reference protocol; reference never offers our own.")
	f.IntVar(&o.LinkWindow, "link-window", o.LinkWindow, "Bytes an agent may send on a connection ahead of its client.")
	f.IntVar(&o.LinkMaxWindow, "link-max-window", o.LinkMaxWindow, "Bytes to which that window grows while the client keeps up.")
	f.Int64Var(&o.LinkBudget, "link-budget", o.LinkBudget, "Bytes by which all windows together may exceed --link-window.")
	f.IntVar(&o.LinksPerAgent, "links-per-agent", o.LinksPerAgent, "TCP connections that each agent holds; more than 1 helps where one core cannot carry an agent's traffic.")
	f.StringVar(&o.SlowReceivers, "slow-receivers", o.SlowReceivers, "What happens to a client that lags behind an agent without flow control: reset closes its connection when --conn-buffer is full; pause makes all connections of the agent wait.")
	f.IntVar(&o.ConnBuffer, "conn-buffer", o.ConnBuffer, "Bytes held for a client that lags behind an agent without flow control.")
	f.IntVar(&o.MaxPendingDials, "max-pending-dials", o.MaxPendingDials, "Dials without an answer at a time.")
	f.IntVar(&o.MaxConnections, "max-connections", o.MaxConnections, "Tunnelled connections at a time.")
	f.IntVar(&o.MaxAgents, "max-agents", o.MaxAgents, "Connections of agents at a time.")
	f.DurationVar(&o.AgentWait, "agent-wait", o.AgentWait, "How long a dial waits for an agent if the server has just started or the last agent has just gone. 0 fails at once.")
	f.StringVar(&o.AgentClaims, "agent-claims", o.AgentClaims, "What agents' identifiers are held against: any accepts all; node wants them to be the node that the token is bound to; certificate wants them to be names in the agent's certificate.")
	f.StringSliceVar(&o.DefaultRoute, "default-route-agents", o.DefaultRoute, "Nodes, or common names of certificates, that may claim the default route when --agent-claims is not any.")
	f.DurationVar(&o.TokenCache, "token-cache", o.TokenCache, "How long an accepted token is not reviewed again. 0 reviews at each connect.")
}

// Validate checks the flags as the reference server does.
func (o *Options) Validate() error {
	for _, check := range []func() error{o.validateFiles, o.validateListeners, o.validateAuth, o.validateRest, o.validateOwn} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (o *Options) validateFiles() error {
	pairs := []struct{ name, cert, key string }{{"server", o.ServerCert, o.ServerKey}, {"cluster", o.ClusterCert, o.ClusterKey}}
	for _, p := range pairs {
		if (p.cert == "") != (p.key == "") {
			return fmt.Errorf("--%[1]s-cert and --%[1]s-key must be set together", p.name)
		}
	}
	for _, f := range []string{o.ServerCert, o.ServerKey, o.ServerCaCert, o.ClusterCert, o.ClusterKey, o.ClusterCaCert, o.KubeconfigPath} {
		if f == "" {
			continue
		}
		if _, err := os.Stat(f); err != nil {
			return fmt.Errorf("checking a file given by a flag: %w", err)
		}
	}
	return nil
}

func (o *Options) validateListeners() error {
	for _, check := range []func() error{o.validateFrontend, o.validatePorts} {
		if err := check(); err != nil {
			return err
		}
	}
	if o.EnableContentionProfiling && !o.EnableProfiling {
		return errors.New("if --enable-contention-profiling is set, --enable-profiling must also be set")
	}
	return nil
}

func (o *Options) validateFrontend() error {
	if o.Mode != "grpc" && o.Mode != "http-connect" {
		return fmt.Errorf("mode must be set to either 'grpc' or 'http-connect' not %q", o.Mode)
	}
	if o.UdsName != "" {
		if o.ServerPort != 0 {
			return fmt.Errorf("server port should be set to 0 not %d for UDS", o.ServerPort)
		}
		if o.ServerCert != "" || o.ServerKey != "" || o.ServerCaCert != "" {
			return errors.New("server cert, key and ca cert should not be set for UDS")
		}
	} else if o.ServerCaCert == "" {
		return errors.New("server ca cert must be set when in TCP mode (uds-name is empty)")
	}
	return nil
}

func (o *Options) validatePorts() error {
	ports := []struct {
		name string
		port int
	}{{"server", o.ServerPort}, {"agent", o.AgentPort}, {"admin", o.AdminPort}, {"health", o.HealthPort}}
	for _, p := range ports {
		if p.port > 49151 {
			return fmt.Errorf("please do not try to use ephemeral port %d for the %s port", p.port, p.name)
		}
		if p.port < 1024 && !(p.name == "server" && o.UdsName != "") {
			return fmt.Errorf("please do not try to use reserved port %d for the %s port", p.port, p.name)
		}
	}
	return nil
}

// usesTokens tells whether agents prove themselves by token.
func (o *Options) usesTokens() bool {
	return o.AgentNamespace != "" || o.AgentServiceAccount != "" || o.AuthenticationAudience != ""
}

func (o *Options) validateAuth() error {
	if !o.usesTokens() {
		return nil
	}
	if o.ClusterCaCert != "" {
		return errors.New("--cluster-ca-cert can not be used when agent authentication is enabled")
	}
	for _, f := range []struct{ name, v string }{{"agent-namespace", o.AgentNamespace}, {"agent-service-account", o.AgentServiceAccount}, {"authentication-audience", o.AuthenticationAudience}} {
		if f.v == "" {
			return fmt.Errorf("--%s cannot be empty when agent authentication is enabled", f.name)
		}
	}
	return nil
}

func (o *Options) validateRest() error {
	if _, err := server.ParseStrategies(o.ProxyStrategies); err != nil {
		return fmt.Errorf("invalid proxy strategies: %w", err)
	}
	if o.XfrChannelSize <= 0 {
		return fmt.Errorf("channel size %d must be greater than 0", o.XfrChannelSize)
	}
	if _, err := tlsVersion(o.TLSMinVersion); err != nil {
		return err
	}
	if _, err := cipherSuites(o.CipherSuites); err != nil {
		return err
	}
	if o.EnableLeaseController {
		if _, err := kube.ParseLabels(o.LeaseLabel); err != nil {
			return err
		}
	}
	if o.GracefulShutdownTimeout < 0 || o.BackendDialTimeout < 0 {
		return errors.New("graceful-shutdown-timeout and backend-dial-timeout must be >= 0")
	}
	return nil
}

// validateOwn checks the flags that the reference server does not have.
func (o *Options) validateOwn() error {
	if o.Link != "auto" && o.Link != "reference" {
		return fmt.Errorf("--link must be auto or reference, not %q", o.Link)
	}
	if c := o.AgentClaims; c != "any" && c != "node" && c != "certificate" {
		return fmt.Errorf("--agent-claims must be any, node or certificate, not %q", c)
	}
	if o.SlowReceivers != "reset" && o.SlowReceivers != "pause" {
		return fmt.Errorf("--slow-receivers must be reset or pause, not %q", o.SlowReceivers)
	}
	if o.LinkWindow < 65536 || o.LinkMaxWindow < o.LinkWindow || o.LinksPerAgent < 1 {
		return errors.New("--link-window must be at least 65536, --link-max-window not smaller, --links-per-agent at least 1")
	}
	return nil
}

func tlsVersion(name string) (uint16, error) {
	versions := map[string]uint16{"": tls.VersionTLS12, "VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11,
		"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13}
	v, ok := versions[name]
	if !ok {
		return 0, fmt.Errorf("unsupported TLS version %q, supported values are: VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13", name)
	}
	return v, nil
}

func cipherSuites(names []string) (ids []uint16, err error) {
next:
	for _, name := range names {
		for _, c := range tls.CipherSuites() {
			if c.Name == name {
				ids = append(ids, c.ID)
				continue next
			}
		}
		return nil, fmt.Errorf("cipher suite %s not supported, doesn't exist or considered as insecure", name)
	}
	return ids, nil
}
