// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProxyProtocol is how kube-apiserver speaks to the Konnectivity server.
// +kubebuilder:validation:Enum=GRPC;HTTPConnect
type ProxyProtocol string

// The proxy protocols, spelled as kube-apiserver wants them.
const (
	// ProxyGRPC needs a Unix socket.
	ProxyGRPC ProxyProtocol = "GRPC"
	// ProxyHTTPConnect works over a Unix socket and over TCP with TLS.
	ProxyHTTPConnect ProxyProtocol = "HTTPConnect"
)

// Form is the kind of workload that runs a component.
// +kubebuilder:validation:Enum=StaticPod;DaemonSet;Deployment
type Form string

// The forms. A server is a StaticPod or a DaemonSet, agents are a DaemonSet or
// a Deployment, a scheduler and a gateway are a Deployment or a StaticPod.
const (
	FormStaticPod  Form = "StaticPod"
	FormDaemonSet  Form = "DaemonSet"
	FormDeployment Form = "Deployment"
)

// Konnectivity configures the tunnel. It holds the settings that server and agent
// must agree on; all others are in Server and Agent.
type Konnectivity struct {
	// enabled renders server, agents and kube-apiserver's part. Default: true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// proxyProtocol is GRPC or HTTPConnect. Default: GRPC. It is written to the
	// egress selector configuration and sets the server's mode.
	// +optional
	ProxyProtocol ProxyProtocol `json:"proxyProtocol,omitempty"`

	// transport is how kube-apiserver reaches the server. Default: a Unix socket.
	// +optional
	Transport Transport `json:"transport,omitempty"`

	// serverHost is the DNS name or IP address that agents dial; it must be in the
	// server's certificate, into which kubeadm puts it only when told (file
	// certificate-sans.yaml). Default: konnectivity-server.<namespace>.svc, for which
	// a headless Service is rendered that selects the server Pods. With any other
	// value no Service is rendered.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServerHost string `json:"serverHost,omitempty"`

	// agentPort is the port of the server that agents dial. Default: 8132.
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=49151
	AgentPort int32 `json:"agentPort,omitempty"`

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

// ProxyStrategy is a way to choose an agent for a connection.
// +kubebuilder:validation:Enum=default;destHost;defaultRoute
type ProxyStrategy string

// The strategies of servers.
const (
	// StrategyDefault takes any agent.
	StrategyDefault ProxyStrategy = "default"
	// StrategyDestHost takes an agent that has the destination as an identifier.
	StrategyDestHost ProxyStrategy = "destHost"
	// StrategyDefaultRoute takes an agent with the identifier default-route=true.
	StrategyDefaultRoute ProxyStrategy = "defaultRoute"
)

// Transport is exactly one of UDS and TCP.
type Transport struct {
	// uds is a Unix socket on the control plane node.
	// +optional
	UDS *UDSTransport `json:"uds,omitempty"`
	// tcp is a TLS connection; with proxyProtocol HTTPConnect only.
	// +optional
	TCP *TCPTransport `json:"tcp,omitempty"`
}

// UDSTransport is a Unix socket.
type UDSTransport struct {
	// path of the socket: absolute, without unix://, at most 107 bytes. Default:
	// /etc/kubernetes/konnectivity-server/konnectivity-server.socket. Its directory
	// is mounted into kube-apiserver and the server, so it must be a directory of
	// its own.
	// +optional
	// +kubebuilder:validation:MaxLength=107
	Path string `json:"path,omitempty"`
}

// TCPTransport is a TLS connection with certificates on both sides. All files
// must be below controlPlane.pkiDir, which both Pods mount.
type TCPTransport struct {
	// url of the server, such as https://127.0.0.1:8131. Required. Its port is the
	// port on which the server listens.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:MinLength=1
	URL string `json:"url,omitempty"`

	// clientCert and clientKey are the files that kube-apiserver presents. Required.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	ClientCert string `json:"clientCert,omitempty"`
	// clientKey belongs to clientCert. Required.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	ClientKey string `json:"clientKey,omitempty"`

	// caBundle verifies the server's certificate. Default: system roots.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	CABundle string `json:"caBundle,omitempty"`

	// tlsServerName is the name expected in the server's certificate. Default: the
	// URL's host.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TLSServerName string `json:"tlsServerName,omitempty"`

	// serverCert and serverKey are the files that the server presents to
	// kube-apiserver. Default: server.certFile and server.keyFile.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	ServerCert string `json:"serverCert,omitempty"`
	// serverKey belongs to serverCert.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	ServerKey string `json:"serverKey,omitempty"`

	// clientCA is the file with which the server verifies kube-apiserver. Required:
	// without it anyone on the network could use the tunnel.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	ClientCA string `json:"clientCA,omitempty"`

	// clientNames are the common names of the client certificates that the server
	// accepts; ClientCA must also have signed them. The upstream server does not
	// check names. Default: kube-apiserver-konnectivity-client, which is the name in
	// the certificate that "fairlead controlplane install" makes. Set it if
	// ClientCert is your own. Where fairlead makes ClientCert, it has the first name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	ClientNames []string `json:"clientNames,omitempty"`
}

// KonnectivityServer configures what only the server has.
type KonnectivityServer struct {
	// form is StaticPod or DaemonSet. Default: StaticPod. Use DaemonSet where the
	// control plane's kubelets read no static Pods; it then runs on nodes with the
	// label node-role.kubernetes.io/control-plane.
	// +optional
	Form Form `json:"form,omitempty"`

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

	// certFile and keyFile are shown to agents. Default: apiserver.crt and
	// apiserver.key in controlPlane.pkiDir, because the server runs on the same
	// machine as kube-apiserver.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	CertFile string `json:"certFile,omitempty"`
	// keyFile belongs to certFile.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	KeyFile string `json:"keyFile,omitempty"`

	// kubeconfig of identity system:konnectivity-server. Default:
	// /etc/kubernetes/konnectivity-server.conf.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Kubeconfig string `json:"kubeconfig,omitempty"`

	// drainTimeout is how long tunneled connections may continue after the server is
	// asked to stop. Default: 5s. The socket is closed meanwhile and until the next
	// server has started; kube-apiserver's GRPC client tries for 30 s to connect, so
	// no call fails if DrainTimeout is well below that, except calls to webhooks with
	// a shorter timeout. 0s ends connections at once. Whole seconds; the Pod's
	// terminationGracePeriodSeconds is 10 more. The upstream server ignores it: set
	// --graceful-shutdown-timeout in extraArgs if its release has that flag.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="is no duration such as 5s"
	DrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`

	// proxyStrategies are the ways in which the server chooses an agent for a
	// connection; if one finds none, the next one decides: destHost an agent that
	// has the destination in agent.identifiers, defaultRoute one with
	// default-route=true there, default any. Default: the program's, which is
	// default. Identifiers and strategies must fit together.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ProxyStrategies []ProxyStrategy `json:"proxyStrategies,omitempty"`

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
	ExtraArgs []Argument `json:"extraArgs,omitempty"`
}

// KonnectivityAgent configures what only the agents have.
type KonnectivityAgent struct {
	// form is DaemonSet or Deployment. Default: DaemonSet. Not every node needs an
	// agent: any agent that reaches a node can carry its traffic.
	// +optional
	Form Form `json:"form,omitempty"`

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

	// hostNetwork runs agents in the node's network. Default: false. If true, the
	// agent's ports must differ from the server's, or both would clash on control
	// plane nodes.
	// +optional
	HostNetwork *bool `json:"hostNetwork,omitempty"`

	// networkPolicy renders a NetworkPolicy that allows connections to the agents at
	// HealthPort only; it does not limit the connections that agents open. It is not
	// rendered for agents on the host network, and has no effect if the network
	// plugin does not support policies. Default: true.
	// +optional
	NetworkPolicy *bool `json:"networkPolicy,omitempty"`

	// identifiers of the agent for the strategies destHost and defaultRoute in
	// server.proxyStrategies, URL-encoded, such as host=$(NODE_NAME)&ipv4=$(HOST_IP) or
	// default-route=true. Default: none.
	// +optional
	// +kubebuilder:validation:MaxLength=16575
	// +kubebuilder:validation:XValidation:rule="self.split('&').size() <= 64",message="must have at most 64 identifiers"
	// +kubebuilder:validation:XValidation:rule="self.split('&').all(i, i.size() <= 258)",message="an identifier must have at most 253 characters after its type and ="
	Identifiers string `json:"identifiers,omitempty"`

	// nodeSelector of the Pods. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=128
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations of the Pods. Default: CriticalAddonsOnly, which does not cover the
	// control plane taint: traffic to those nodes goes through other agents.
	// +optional
	Tolerations *Tolerations `json:"tolerations,omitempty"`

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
	ExtraArgs []Argument `json:"extraArgs,omitempty"`
}
