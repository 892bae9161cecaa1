// SPDX-License-Identifier: Apache-2.0

// Package app is the command konnectivity-agent: the flags of upstream
// agent with the same meaning and defaults, some of our own, and what they turn
// on.
package app

import (
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/cmdutil"
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
	Link                    cmdutil.LinkOptions
	TracingConfigFile       string
	Links                   int
	DialTimeout             time.Duration
	MaxPendingDials         int
	MaxConnections          int
	AllowDestinations       string
	DenyDestinations        string
	GracefulShutdownTimeout time.Duration

	graceErr error // the environment's value of the last one is no duration
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	grace, err := cmdutil.DrainTimeout(DefaultDrainTimeout)
	return &Options{
		ProxyServerHost: "127.0.0.1", ProxyServerPort: 8091, HealthServerPort: 8093, AdminBindAddress: "127.0.0.1", AdminServerPort: 8094,
		AgentID: cmdutil.DefaultID("PROXY_AGENT_ID"), SyncInterval: time.Second, ProbeInterval: time.Second, SyncIntervalCap: 10 * time.Second,
		KeepaliveTime: time.Hour, XfrChannelSize: 150, LeaseNamespace: "kube-system", LeaseLabel: "k8s-app=konnectivity-server",
		ServerCountSource: "default", APIContentType: "application/vnd.kubernetes.protobuf",
		Link:        cmdutil.DefaultLinkOptions(),
		DialTimeout: 5 * time.Second, MaxPendingDials: 10_000, MaxConnections: 100_000,
		DenyDestinations: destinations.DefaultDeny, GracefulShutdownTimeout: grace, graceErr: err,
	}
}

// DefaultDrainTimeout is for how long connections may go on after the first
// SIGTERM.
const DefaultDrainTimeout = 5 * time.Second
