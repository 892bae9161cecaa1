// SPDX-License-Identifier: Apache-2.0

// Package app is the command konnectivity-agent: the flags of upstream
// agent with the same meaning and defaults, some of our own, and what they turn
// on.
package app

import (
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/cmdutil"
)

// Options are the flags.
type Options struct {
	// Agent has what flags set in the agent's own configuration.
	Agent agent.Config

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
	ProbeInterval               time.Duration
	ServiceAccountTokenPath     string
	WarnOnChannelLimit          bool
	XfrChannelSize              int
	CountServerLeases           bool
	LeaseNamespace, LeaseLabel  string
	ServerCountSource           string
	KubeconfigPath              string
	APIContentType              string

	// Our own.
	Link                    cmdutil.LinkOptions
	TracingConfigFile       string
	AllowDestinations       string
	DenyDestinations        string
	GracefulShutdownTimeout time.Duration

	graceErr error // the environment's value of the last one is no duration
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	grace, err := cmdutil.DrainTimeout(DefaultDrainTimeout)
	o := &Options{
		Agent: agent.DefaultConfig(), ProxyServerHost: "127.0.0.1", ProxyServerPort: 8091, HealthServerPort: 8093, AdminBindAddress: "127.0.0.1", AdminServerPort: 8094,
		ProbeInterval: time.Second, XfrChannelSize: 150, LeaseNamespace: "kube-system", LeaseLabel: "k8s-app=konnectivity-server",
		ServerCountSource: "default", APIContentType: "application/vnd.kubernetes.protobuf",
		Link:             cmdutil.DefaultLinkOptions(),
		DenyDestinations: destinations.DefaultDeny, GracefulShutdownTimeout: grace, graceErr: err,
	}
	o.Agent.AgentID = cmdutil.DefaultID("PROXY_AGENT_ID")
	return o
}

// DefaultDrainTimeout is for how long connections may go on after the first
// SIGTERM.
const DefaultDrainTimeout = 5 * time.Second
