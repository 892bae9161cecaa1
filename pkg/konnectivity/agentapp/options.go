// Package agentapp is the command konnectivity-agent: the flags of the reference
// agent with the same meaning and defaults, some of our own, and what they turn
// on.
package agentapp

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
)

// Options are the flags.
type Options struct {
	AgentCert, AgentKey, CaCert string
	ProxyServerHost             string
	ProxyServerPort             int
	AlpnProtos                  []string
	HealthServerHost            string
	HealthServerPort            int
	AdminBindAddress            string
	AdminServerPort             int
	EnableProfiling             bool
	EnableContentionProfiling   bool
	AgentID                     string
	AgentIdentifiers            string
	SyncInterval                time.Duration
	ProbeInterval               time.Duration
	SyncIntervalCap             time.Duration
	KeepaliveTime               time.Duration
	ServiceAccountTokenPath     string
	WarnOnChannelLimit          bool
	SyncForever                 bool
	XfrChannelSize              int
	CountServerLeases           bool
	LeaseNamespace, LeaseLabel  string
	ServerCountSource           string
	KubeconfigPath              string
	APIContentType              string

	// Our own.
	Link                    string
	LinkWindow              int
	LinkMaxWindow           int
	LinkBudget              int64
	Links                   int
	SlowReceivers           string
	ConnBuffer              int
	DialTimeout             time.Duration
	MaxPendingDials         int
	MaxConnections          int
	AllowDestinations       string
	DenyDestinations        string
	GracefulShutdownTimeout time.Duration
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		ProxyServerHost: "127.0.0.1", ProxyServerPort: 8091, HealthServerPort: 8093, AdminBindAddress: "127.0.0.1", AdminServerPort: 8094,
		AgentID: defaultID(), SyncInterval: time.Second, ProbeInterval: time.Second, SyncIntervalCap: 10 * time.Second,
		KeepaliveTime: time.Hour, XfrChannelSize: 150, LeaseNamespace: "kube-system", LeaseLabel: "k8s-app=konnectivity-server",
		ServerCountSource: "default", APIContentType: "application/vnd.kubernetes.protobuf",
		Link: "auto", LinkWindow: 256 << 10, LinkMaxWindow: 4 << 20, LinkBudget: 32 << 20, SlowReceivers: "reset", ConnBuffer: 16 << 20,
		DialTimeout: 5 * time.Second, MaxPendingDials: 10_000, MaxConnections: 100_000,
		DenyDestinations: agent.DefaultDeny, GracefulShutdownTimeout: drainTimeout(),
	}
}

// DrainTimeoutVariable is the environment variable that overrides the default of
// --graceful-shutdown-timeout, 5 s; its value is a duration like "20s".
const DrainTimeoutVariable = "FAIRLEAD_DRAIN_TIMEOUT"

func drainTimeout() time.Duration {
	if d, err := time.ParseDuration(os.Getenv(DrainTimeoutVariable)); err == nil && d >= 0 {
		return d
	}
	return 5 * time.Second
}

func defaultID() string {
	if id := os.Getenv("PROXY_AGENT_ID"); id != "" {
		return id
	}
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// AddFlags adds the flags of the reference agent, then our own.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.AgentCert, "agent-cert", o.AgentCert, "If non-empty secure communication with this cert.")
	f.StringVar(&o.AgentKey, "agent-key", o.AgentKey, "If non-empty secure communication with this key.")
	f.StringVar(&o.CaCert, "ca-cert", o.CaCert, "If non-empty the CAs we use to validate clients.")
	f.StringVar(&o.ProxyServerHost, "proxy-server-host", o.ProxyServerHost, "The hostname to use to connect to the proxy-server.")
	f.IntVar(&o.ProxyServerPort, "proxy-server-port", o.ProxyServerPort, "The port the proxy server is listening on.")
	f.StringSliceVar(&o.AlpnProtos, "alpn-proto", o.AlpnProtos, "Additional ALPN protocols to be presented when connecting to the server. Useful to distinguish between network proxy and apiserver connections that share the same destination address.")
	f.StringVar(&o.HealthServerHost, "health-server-host", o.HealthServerHost, "The host address to listen on, without port.")
	f.IntVar(&o.HealthServerPort, "health-server-port", o.HealthServerPort, "The port the health server is listening on.")
	f.IntVar(&o.AdminServerPort, "admin-server-port", o.AdminServerPort, "The port the admin server is listening on.")
	f.StringVar(&o.AdminBindAddress, "admin-bind-address", o.AdminBindAddress, "Bind address for admin connections. If empty, we will bind to all interfaces.")
	f.BoolVar(&o.EnableProfiling, "enable-profiling", o.EnableProfiling, "enable pprof at host:admin-port/debug/pprof")
	f.BoolVar(&o.EnableContentionProfiling, "enable-contention-profiling", o.EnableContentionProfiling, "enable contention profiling at host:admin-port/debug/pprof/block. \"--enable-profiling\" must also be set.")
	f.StringVar(&o.AgentID, "agent-id", o.AgentID, "The unique ID of this agent. Can also be set by the 'PROXY_AGENT_ID' environment variable. Default to a generated uuid if not set.")
	f.DurationVar(&o.SyncInterval, "sync-interval", o.SyncInterval, "The initial interval by which the agent periodically checks if it has connections to all instances of the proxy server.")
	f.DurationVar(&o.ProbeInterval, "probe-interval", o.ProbeInterval, "The interval by which the agent periodically checks if its connections to the proxy server are ready. Accepted for compatibility: the loss of a connection is seen at once.")
	f.DurationVar(&o.SyncIntervalCap, "sync-interval-cap", o.SyncIntervalCap, "The maximum interval for the SyncInterval to back off to when unable to connect to the proxy server")
	f.DurationVar(&o.KeepaliveTime, "keepalive-time", o.KeepaliveTime, "Time for gRPC agent server keepalive.")
	f.StringVar(&o.ServiceAccountTokenPath, "service-account-token-path", o.ServiceAccountTokenPath, "If non-empty proxy agent uses this token to prove its identity to the proxy server.")
	f.StringVar(&o.AgentIdentifiers, "agent-identifiers", o.AgentIdentifiers, "Identifiers of the agent that will be used by the server when choosing agent. N.B. the list of identifiers must be in URL encoded format. e.g.,host=localhost&host=node1.mydomain.com&cidr=127.0.0.1/16&ipv4=1.2.3.4&ipv4=5.6.7.8&ipv6=:::::&default-route=true")
	f.BoolVar(&o.WarnOnChannelLimit, "warn-on-channel-limit", o.WarnOnChannelLimit, "Accepted for compatibility: there are no channels that could be full.")
	f.BoolVar(&o.SyncForever, "sync-forever", o.SyncForever, "If true, the agent continues syncing, in order to support server count changes.")
	f.IntVar(&o.XfrChannelSize, "xfr-channel-size", o.XfrChannelSize, "Accepted for compatibility; buffers are bounded in bytes by --link-window and --conn-buffer.")
	f.BoolVar(&o.CountServerLeases, "count-server-leases", o.CountServerLeases, "Enables lease counting system to determine the number of proxy servers to connect to.")
	f.StringVar(&o.LeaseNamespace, "lease-namespace", o.LeaseNamespace, "Namespace where lease objects are managed.")
	f.StringVar(&o.LeaseLabel, "lease-label", o.LeaseLabel, "The labels on which the lease objects are managed.")
	f.StringVar(&o.ServerCountSource, "server-count-source", o.ServerCountSource, "Defines how the server counts from lease and from server responses are combined. Possible values: 'default' to use only one source (server or leases depending on other flags), 'max' to take the larger value.")
	f.StringVar(&o.KubeconfigPath, "kubeconfig", o.KubeconfigPath, "Path to the kubeconfig file")
	f.StringVar(&o.APIContentType, "kube-api-content-type", o.APIContentType, "Content type of requests sent to apiserver. Accepted for compatibility; requests are JSON.")
	o.addOwnFlags(f)
}

func (o *Options) addOwnFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Link, "link", o.Link, "Protocol with servers: auto prefers our own and falls back to the reference protocol; reference never offers our own.")
	f.IntVar(&o.LinkWindow, "link-window", o.LinkWindow, "Bytes a server may send on a connection ahead of its destination.")
	f.IntVar(&o.LinkMaxWindow, "link-max-window", o.LinkMaxWindow, "Bytes to which that window grows while the destination keeps up.")
	f.Int64Var(&o.LinkBudget, "link-budget", o.LinkBudget, "Bytes by which all windows together may exceed --link-window.")
	f.IntVar(&o.Links, "links", o.Links, "TCP connections to each server; 0 does as the server says.")
	f.StringVar(&o.SlowReceivers, "slow-receivers", o.SlowReceivers, "What happens to a destination that lags behind a server without flow control: reset closes its connection when --conn-buffer is full; pause makes all connections wait.")
	f.IntVar(&o.ConnBuffer, "conn-buffer", o.ConnBuffer, "Bytes held for a destination that lags behind a server without flow control.")
	f.DurationVar(&o.DialTimeout, "dial-timeout", o.DialTimeout, "How long connecting to a destination may take.")
	f.IntVar(&o.MaxPendingDials, "max-pending-dials", o.MaxPendingDials, "Dials to destinations at a time.")
	f.IntVar(&o.MaxConnections, "max-connections", o.MaxConnections, "Connections to destinations at a time.")
	f.StringVar(&o.AllowDestinations, "allow-destinations", o.AllowDestinations, "Destinations that may be dialled, as a comma-separated list of CIDRs, addresses or host names, each with an optional port. Empty allows everything that is not denied.")
	f.StringVar(&o.DenyDestinations, "deny-destinations", o.DenyDestinations, "Destinations that may not be dialled, in the same form. Addresses and hosts in --agent-identifiers are always allowed. Empty denies nothing, as the reference agent does.")
	f.DurationVar(&o.GracefulShutdownTimeout, "graceful-shutdown-timeout", o.GracefulShutdownTimeout, "How long connections may go on after the first SIGTERM. The agent exits when the last one has ended.")
}

// Validate checks the flags as the reference agent does.
func (o *Options) Validate() error {
	if (o.AgentCert == "") != (o.AgentKey == "") {
		return errors.New("--agent-cert and --agent-key must be set together")
	}
	for _, f := range []string{o.AgentCert, o.AgentKey, o.CaCert, o.ServiceAccountTokenPath, o.KubeconfigPath} {
		if f == "" {
			continue
		}
		if _, err := os.Stat(f); err != nil {
			return fmt.Errorf("checking a file given by a flag: %w", err)
		}
	}
	for _, p := range []struct {
		name string
		port int
	}{{"proxy server", o.ProxyServerPort}, {"health server", o.HealthServerPort}, {"admin server", o.AdminServerPort}} {
		if p.port <= 0 {
			return fmt.Errorf("%s port %d must be greater than 0", p.name, p.port)
		}
	}
	if o.XfrChannelSize <= 0 {
		return fmt.Errorf("channel size %d must be greater than 0", o.XfrChannelSize)
	}
	if o.EnableContentionProfiling && !o.EnableProfiling {
		return errors.New("if --enable-contention-profiling is set, --enable-profiling must also be set")
	}
	if o.SyncInterval > o.SyncIntervalCap {
		return fmt.Errorf("sync interval %v must be less than sync interval cap %v", o.SyncInterval, o.SyncIntervalCap)
	}
	if s := o.ServerCountSource; s != "" && s != "default" && s != "max" {
		return fmt.Errorf("--server-count-source must be one of '', 'default', 'max', got %v", s)
	}
	if err := validateIdentifiers(o.AgentIdentifiers); err != nil {
		return fmt.Errorf("agent address is invalid: %w", err)
	}
	return o.validateOwn()
}

func (o *Options) validateOwn() error {
	if o.Link != "auto" && o.Link != "reference" {
		return fmt.Errorf("--link must be auto or reference, not %q", o.Link)
	}
	if o.SlowReceivers != "reset" && o.SlowReceivers != "pause" {
		return fmt.Errorf("--slow-receivers must be reset or pause, not %q", o.SlowReceivers)
	}
	if o.LinkWindow < 65536 || o.LinkMaxWindow < o.LinkWindow || o.Links < 0 {
		return errors.New("--link-window must be at least 65536, --link-max-window not smaller, --links not negative")
	}
	_, err := o.policy()
	return err
}

func validateIdentifiers(query string) error {
	v, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	for kind := range v {
		switch kind {
		case "ipv4", "ipv6", "cidr", "host", "default-route":
		default:
			return fmt.Errorf("unknown address type: %s", kind)
		}
	}
	return nil
}

// policy builds the rules for destinations. What the agent is known by is
// allowed: kubelets and the like on its own node are dialled by these names.
func (o *Options) policy() (agent.Policy, error) {
	var p agent.Policy
	var err error
	if p.Allow, err = agent.ParseRules(o.AllowDestinations); err != nil {
		return p, err
	}
	if p.Deny, err = agent.ParseRules(o.DenyDestinations); err != nil {
		return p, err
	}
	p.Self = map[string]bool{}
	v, _ := url.ParseQuery(o.AgentIdentifiers)
	for _, kind := range []string{"ipv4", "ipv6", "host"} {
		for _, id := range v[kind] {
			if a, err := netip.ParseAddr(id); err == nil {
				id = a.Unmap().String()
			}
			p.Self[strings.ToLower(id)] = true
		}
	}
	return p, nil
}
