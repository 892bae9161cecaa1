// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"

	config "github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// HostNetwork says whether Pods use the node's network.
// +kubebuilder:validation:Enum=Enabled;Disabled
type HostNetwork string

// The values of HostNetwork.
const (
	HostNetworkEnabled  HostNetwork = "Enabled"
	HostNetworkDisabled HostNetwork = "Disabled"
)

// ServerAddress is where agents dial a server. It has a host, a port, or both.
// +kubebuilder:validation:MinProperties=1
type ServerAddress struct {
	// host is the DNS name or IP address. It must be in the server's certificate, into
	// which kubeadm puts it only if its configuration lists it (file
	// certificate-sans.yaml). Default: the Service that the bundle renders; in a
	// TunnelPool, the Bundle's.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host,omitempty"`

	// port of the server. Default: 8132; in a TunnelPool, the Bundle's.
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=49151
	Port int32 `json:"port,omitempty"`
}

// IdentifierType is a kind of destination that an agent stands for.
// +kubebuilder:validation:Enum=Host;IPv4;IPv6;CIDR;DefaultRoute
type IdentifierType string

// The types of identifiers.
const (
	IdentifierHost         IdentifierType = "Host"
	IdentifierIPv4         IdentifierType = "IPv4"
	IdentifierIPv6         IdentifierType = "IPv6"
	IdentifierCIDR         IdentifierType = "CIDR"
	IdentifierDefaultRoute IdentifierType = "DefaultRoute"
)

// Identifier is a destination that an agent stands for.
type Identifier struct {
	// type of the destination: Host, IPv4, IPv6, CIDR or DefaultRoute.
	// +required
	Type IdentifierType `json:"type"`

	// value is the host, the address or the range, such as $(NODE_NAME) or $(HOST_IP);
	// true or false for DefaultRoute.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Value string `json:"value"`
}

// KonnectivitySpec configures the tunnel. It holds the settings that server and agent
// must agree on; all others are in Server and Agent.
type KonnectivitySpec struct {
	// enabled renders server, agents and kube-apiserver's part. Default: true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// proxyProtocol is GRPC or HTTPConnect. Default: GRPC. It is written to the
	// egress selector configuration and sets the server's mode.
	// +optional
	ProxyProtocol config.ProxyProtocol `json:"proxyProtocol,omitempty"`

	// transport is how kube-apiserver reaches the server. Default: a Unix socket.
	// +optional
	Transport config.Transport `json:"transport,omitempty"`

	// serverAddresses are where agents dial the server. Default: host
	// konnectivity-server.<namespace>.svc, for which a headless Service is rendered that
	// selects the server Pods, and port 8132. It is a list because agents may dial
	// several in a later version; today there is one.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1
	ServerAddresses []ServerAddress `json:"serverAddresses,omitempty"`

	// authenticationAudience is the audience of the agents' tokens, which the
	// server demands. Default: system:konnectivity-server.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	AuthenticationAudience string `json:"authenticationAudience,omitempty"`

	// agentServiceAccount is the agents' ServiceAccount, which the server demands.
	// Default: konnectivity-agent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	AgentServiceAccount string `json:"agentServiceAccount,omitempty"`

	// leaseCounting lets servers publish Leases that agents count, instead of a fixed
	// number of servers; for control planes whose size changes. Default: false.
	// +optional
	LeaseCounting *bool `json:"leaseCounting,omitempty"`

	// leaseNamespace is the namespace of the servers' Leases, which the server may
	// write: all Leases in it, since their names are generated. With leaseCounting it is
	// rendered, unless it is one that every cluster has. All servers and agents must
	// agree on it. Default: fairlead-konnectivity.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	LeaseNamespace string `json:"leaseNamespace,omitempty"`

	// server is the proxy server on each control plane node.
	// +optional
	Server KonnectivityServer `json:"server,omitempty"`

	// agent is the proxy agent in the cluster.
	// +optional
	Agent KonnectivityAgent `json:"agent,omitempty"`
}

// KonnectivityServer configures what only the server has.
type KonnectivityServer struct {
	// form is StaticPod or DaemonSet. Default: StaticPod. Use DaemonSet where the
	// control plane's kubelets read no static Pods; it then runs on nodes with the
	// label node-role.kubernetes.io/control-plane.
	// +optional
	Form config.Form `json:"form,omitempty"`

	// image of the server; must hold /proxy-server. Default: this release's
	// konnectivity-server.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// adminPort serves metrics and profiles on loopback. Default: 8133.
	// +optional
	AdminPort int32 `json:"adminPort,omitempty"`

	// healthPort serves /healthz, /readyz and /metrics. Default: 8134.
	// +optional
	HealthPort int32 `json:"healthPort,omitempty"`

	// healthBindAddress is the IP address at which HealthPort is open. Default:
	// 127.0.0.1. To scrape metrics from elsewhere, set an address of the node, or
	// 0.0.0.0 or :: for all addresses. The port requires no credentials.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	HealthBindAddress string `json:"healthBindAddress,omitempty"`

	// count is the number of servers that agents must be connected to, one per
	// control plane node. Default: 1. Not used with leaseCounting.
	// +optional
	Count *int32 `json:"count,omitempty"`

	// certFile and KeyFile are shown to agents. Default: apiserver.crt and
	// apiserver.key in controlPlane.pkiDir, because the server runs on the same
	// machine as kube-apiserver.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	CertFile string `json:"certFile,omitempty"`
	// keyFile belongs to CertFile.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	KeyFile string `json:"keyFile,omitempty"`

	// kubeconfig of identity system:konnectivity-server. Default:
	// /etc/kubernetes/konnectivity-server.conf.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Kubeconfig string `json:"kubeconfig,omitempty"`

	// drainTimeoutSeconds is how long tunneled connections may continue after the server is
	// asked to stop. Default: 5. The socket is closed meanwhile and until the next
	// server has started; kube-apiserver's GRPC client tries for 30 s to connect, so
	// no call fails if DrainTimeout is well below that, except calls to webhooks with
	// a shorter timeout. 0 ends connections at once. The Pod's
	// terminationGracePeriodSeconds is 10 more. The upstream server ignores it: set
	// --graceful-shutdown-timeout in extraArgs if its release has that flag.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DrainTimeoutSeconds *int32 `json:"drainTimeoutSeconds,omitempty"`

	// proxyStrategies are the ways in which the server chooses an agent for a
	// connection; if one finds none, the next one decides: destHost an agent that
	// has the destination in agent.identifiers, defaultRoute one with
	// default-route=true there, default any. Default: the program's, which is
	// default. Identifiers and strategies must fit together.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ProxyStrategies []config.ProxyStrategy `json:"proxyStrategies,omitempty"`

	// nonNodeCIDRs are address ranges that hold no node: those of Services, as
	// kube-apiserver's --service-cluster-ip-range has them, and those of Pods if Nodes
	// have no spec.podCIDRs. No agent gets connections because its identifiers have
	// such an address. The upstream server ignores it. Default: none; "fairlead up"
	// sets the range of Services of its cluster.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=128
	NonNodeCIDRs []string `json:"nonNodeCIDRs,omitempty"`

	// resources of the container. Default: requests of 50m CPU and 64Mi memory, and a
	// memory limit of --total-buffer and --link-budget, which extraArgs may set, plus
	// 480Mi: 1536Mi with the flags' defaults. There is no limit with --total-buffer 0.
	// Any other value is used as it is.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// extraArgs are further flags of proxy-server. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	ExtraArgs []config.Argument `json:"extraArgs,omitempty"`
}

// KonnectivityAgent configures what only the agents have.
type KonnectivityAgent struct {
	// form is DaemonSet or Deployment. Default: DaemonSet. Not every node needs an
	// agent: any agent that reaches a node can carry its traffic.
	// +optional
	Form config.Form `json:"form,omitempty"`

	// replicas of the Deployment form. Default: 2.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// image of the agent; must hold /proxy-agent. Default: this release's
	// konnectivity-agent.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// adminPort serves profiles on loopback. Default: 8133.
	// +optional
	AdminPort int32 `json:"adminPort,omitempty"`

	// healthPort serves /healthz, /readyz and /metrics. Default: 8134.
	// +optional
	HealthPort int32 `json:"healthPort,omitempty"`

	// hostNetwork runs agents in the node's network: Enabled or Disabled. Default:
	// Disabled. If Enabled, the agent's ports must differ from the server's, or both
	// would clash on control plane nodes.
	// +optional
	HostNetwork HostNetwork `json:"hostNetwork,omitempty"`

	// networkPolicy renders a NetworkPolicy that allows connections to the agents at
	// HealthPort only; it does not limit the connections that agents open. It is not
	// rendered for agents on the host network, and has no effect if the network
	// plugin does not support policies. Default: true.
	// +optional
	NetworkPolicy *bool `json:"networkPolicy,omitempty"`

	// identifiers of the agent for the strategies destHost and defaultRoute in
	// server.proxyStrategies. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Identifiers []Identifier `json:"identifiers,omitempty"`

	// nodeSelector of the Pods. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=128
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations of the Pods. Default: CriticalAddonsOnly, which does not cover the
	// control plane taint: traffic to those nodes goes through other agents.
	// +optional
	Tolerations *config.Tolerations `json:"tolerations,omitempty"`

	// resources of the container. Default: requests of 50m CPU and 64Mi memory, and a
	// memory limit of --total-buffer and --link-budget, which extraArgs may set, plus
	// 480Mi: 1536Mi with the flags' defaults. There is no limit with --total-buffer 0.
	// Any other value is used as it is.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// extraArgs are further flags of proxy-agent. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	ExtraArgs []config.Argument `json:"extraArgs,omitempty"`
}
