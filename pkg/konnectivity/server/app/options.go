// SPDX-License-Identifier: Apache-2.0

// Package app is the command konnectivity-server: the flags of
// upstream's server with the same meaning and defaults, some of our own, and what
// they turn on.
package app

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/cmdutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tlsreload"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
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
	AllowedClientNames []string // in certificates of clients over TCP

	Link              cmdutil.LinkOptions
	TracingConfigFile string
	LinksPerAgent     int
	MaxPendingDials   int
	MaxConnections    int
	MaxPerAgent       int
	MaxAgents         int
	MaxPerOwner       int
	AgentWait         time.Duration
	TokenCache        time.Duration
	// TokenReviewInterval is for tokens of connected agents.
	TokenReviewInterval time.Duration
	AgentClaims         string
	DefaultRoute        []string
	NonNodeCIDRs        []string

	// Where the server shows its state.
	StateSocket, StateBindAddress      string
	StatePort                          int
	StateConnect                       bool
	StateServiceAccount, StateAudience string
	// LocalDestinations are those that the server connects to itself.
	LocalDestinations []string

	agentCertificate *tlsreload.Loader // of the agents' listener, once it is open

	graceErr error // the environment's value of GracefulShutdownTimeout is no duration
	stateErr error // the environment's value of StatePort is no number
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	grace, err := cmdutil.DrainTimeout(0)
	statePort, stateErr := statePort()
	d := server.DefaultConfig()
	return &Options{
		GracefulShutdownTimeout: grace, graceErr: err,
		StatePort: statePort, stateErr: stateErr, StateConnect: os.Getenv(settings.StateConnect) == "true", StateServiceAccount: os.Getenv(settings.StateServiceAccount), StateAudience: settings.DefaultStateAudience,
		LocalDestinations: list(os.Getenv(settings.LocalDestinations)),
		Mode:              "grpc", DeleteUDSFile: true, ServerPort: 8090, AgentPort: 8091, HealthPort: 8092, AdminPort: 8095,
		AdminBindAddress: "127.0.0.1", KeepaliveTime: d.AgentKeepalive, FrontendKeepaliveTime: d.FrontendKeepalive,
		ServerID: cmdutil.DefaultID("PROXY_SERVER_ID"), ServerCount: d.ServerCount, APIContentType: "application/vnd.kubernetes.protobuf",
		ProxyStrategies: "default", XfrChannelSize: 10, LeaseNamespace: "kube-system", LeaseLabel: "k8s-app=konnectivity-server",
		Link: cmdutil.DefaultLinkOptions(), LinksPerAgent: d.Links, MaxPendingDials: d.MaxPending, MaxConnections: d.MaxConns, MaxPerAgent: d.MaxPerAgent, MaxAgents: d.MaxAgents,
		AgentWait: 5 * time.Second, TokenCache: time.Minute, TokenReviewInterval: 10 * time.Minute, AgentClaims: cmp.Or(os.Getenv(settings.AgentClaims), "any"),
		NonNodeCIDRs: list(os.Getenv(settings.NonNodeCIDRs)),
		DefaultRoute: list(os.Getenv(settings.DefaultRouteAgents)), AllowedClientNames: list(os.Getenv(settings.AllowedClientNames)),
	}
}

// statePort is the default of --state-port.
func statePort() (int, error) {
	text := os.Getenv(settings.StatePort)
	if text == "" {
		return 0, nil
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%s=%q is not a port number", settings.StatePort, text)
	}
	return port, nil
}

// list splits a list at commas; nothing is an empty list.
func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}
