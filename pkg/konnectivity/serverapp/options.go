// Package serverapp is the command konnectivity-server: the flags of the
// reference server with the same meaning and defaults, some of our own, and what
// they turn on.
package serverapp

import (
	"cmp"
	"os"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/shell"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/variables"
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
	Link            shell.LinkOptions
	LinksPerAgent   int
	MaxPendingDials int
	MaxConnections  int
	MaxPerAgent     int
	MaxAgents       int
	AgentWait       time.Duration
	TokenCache      time.Duration
	AgentClaims     string
	DefaultRoute    []string

	graceErr error // the environment's value of GracefulShutdownTimeout is no duration
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	grace, err := shell.DrainTimeout(0)
	return &Options{
		GracefulShutdownTimeout: grace, graceErr: err,
		Mode: "grpc", DeleteUDSFile: true, ServerPort: 8090, AgentPort: 8091, HealthPort: 8092, AdminPort: 8095,
		AdminBindAddress: "127.0.0.1", KeepaliveTime: time.Hour, FrontendKeepaliveTime: time.Hour,
		ServerID: shell.DefaultID("PROXY_SERVER_ID"), ServerCount: 1, APIContentType: "application/vnd.kubernetes.protobuf",
		ProxyStrategies: "default", XfrChannelSize: 10, LeaseNamespace: "kube-system", LeaseLabel: "k8s-app=konnectivity-server",
		Link: shell.DefaultLinkOptions(), LinksPerAgent: 1, MaxPendingDials: 10_000, MaxConnections: 200_000, MaxPerAgent: 100_000, MaxAgents: 20_000,
		AgentWait: 5 * time.Second, TokenCache: time.Minute, AgentClaims: cmp.Or(os.Getenv(variables.AgentClaims), "any"),
		DefaultRoute: list(os.Getenv(variables.DefaultRouteAgents)),
	}
}

// list splits a list at commas; nothing is an empty list.
func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}
