package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProxyProtocol is how kube-apiserver speaks to the Konnectivity server.
type ProxyProtocol string

// The proxy protocols, spelled as kube-apiserver wants them.
const (
	// ProxyGRPC needs a Unix socket (KON-05).
	ProxyGRPC ProxyProtocol = "GRPC"
	// ProxyHTTPConnect works over a Unix socket and over TCP with TLS.
	ProxyHTTPConnect ProxyProtocol = "HTTPConnect"
)

// Form is the kind of workload that runs a component.
type Form string

// The forms. A server is a StaticPod or a DaemonSet, agents are a DaemonSet or
// a Deployment.
const (
	FormStaticPod  Form = "StaticPod"
	FormDaemonSet  Form = "DaemonSet"
	FormDeployment Form = "Deployment"
)

// Konnectivity configures the tunnel. What server and agent must agree on
// stands here; the rest is below Server and Agent.
type Konnectivity struct {
	// Enabled renders server, agents and kube-apiserver's part. Default: true.
	Enabled *bool `json:"enabled,omitempty"`

	// ProxyProtocol is GRPC or HTTPConnect. Default: GRPC. It is written to the
	// egress selector configuration and sets the server's mode.
	ProxyProtocol ProxyProtocol `json:"proxyProtocol,omitempty"`

	// Transport is how kube-apiserver reaches the server. Default: a Unix socket.
	Transport Transport `json:"transport,omitempty"`

	// ServerHost is the DNS name or IP address that agents dial; it must be in the
	// server's certificate, into which kubeadm puts it only when told (file
	// certificate-sans.yaml). Default: konnectivity-server.<namespace>.svc, for which
	// a headless Service is rendered that selects the server Pods. With any other
	// value no Service is rendered.
	ServerHost string `json:"serverHost,omitempty"`

	// AgentPort is the port of the server that agents dial. Default: 8132.
	AgentPort int32 `json:"agentPort,omitempty"`

	// AuthenticationAudience is the audience of the agents' tokens, which the
	// server demands. Default: system:konnectivity-server.
	AuthenticationAudience string `json:"authenticationAudience,omitempty"`

	// AgentServiceAccount is the agents' ServiceAccount, which the server demands.
	// Default: konnectivity-agent.
	AgentServiceAccount string `json:"agentServiceAccount,omitempty"`

	// LeaseCounting lets servers publish Leases that agents count, instead of a
	// fixed number of servers; for control planes whose size changes (KON-50).
	// Default: false.
	LeaseCounting *bool `json:"leaseCounting,omitempty"`

	// Server is the proxy server on each control plane node.
	Server KonnectivityServer `json:"server,omitempty"`

	// Agent is the proxy agent in the cluster.
	Agent KonnectivityAgent `json:"agent,omitempty"`
}

// Transport is exactly one of UDS and TCP.
type Transport struct {
	// UDS is a Unix socket on the control plane node.
	UDS *UDSTransport `json:"uds,omitempty"`
	// TCP is a TLS connection; with proxyProtocol HTTPConnect only.
	TCP *TCPTransport `json:"tcp,omitempty"`
}

// UDSTransport is a Unix socket.
type UDSTransport struct {
	// Path of the socket: absolute, without unix://, at most 107 bytes. Default:
	// /etc/kubernetes/konnectivity-server/konnectivity-server.socket. Its directory
	// is mounted into kube-apiserver and the server, so it must be a directory of
	// its own.
	Path string `json:"path,omitempty"`
}

// TCPTransport is a TLS connection with certificates on both sides. All files
// must be below controlPlane.pkiDir, which both Pods mount.
type TCPTransport struct {
	// URL of the server, such as https://127.0.0.1:8131. Required. Its port is the
	// port on which the server listens.
	URL string `json:"url"`

	// ClientCert and ClientKey are the files that kube-apiserver presents. Required.
	ClientCert string `json:"clientCert,omitempty"`
	// ClientKey belongs to ClientCert. Required.
	ClientKey string `json:"clientKey,omitempty"`

	// CABundle verifies the server's certificate. Default: system roots.
	CABundle string `json:"caBundle,omitempty"`

	// TLSServerName is the name expected in the server's certificate. Default: the
	// URL's host.
	TLSServerName string `json:"tlsServerName,omitempty"`

	// ServerCert and ServerKey are the files that the server presents to
	// kube-apiserver. Default: server.certFile and server.keyFile.
	ServerCert string `json:"serverCert,omitempty"`
	// ServerKey belongs to ServerCert.
	ServerKey string `json:"serverKey,omitempty"`

	// ClientCA is the file with which the server verifies kube-apiserver. Required:
	// without it everybody on the network could use the tunnel.
	ClientCA string `json:"clientCA,omitempty"`
}

// KonnectivityServer configures what only the server has.
type KonnectivityServer struct {
	// Form is StaticPod or DaemonSet. Default: StaticPod. Use DaemonSet where the
	// control plane's kubelets read no static Pods; it then runs on nodes with the
	// label node-role.kubernetes.io/control-plane.
	Form Form `json:"form,omitempty"`

	// Image of the server; must hold /proxy-server. Default: this release's
	// konnectivity-server.
	Image string `json:"image,omitempty"`

	// AdminPort serves metrics and profiles on loopback. Default: 8133.
	AdminPort int32 `json:"adminPort,omitempty"`

	// HealthPort serves /healthz, /readyz and /metrics. Default: 8134.
	HealthPort int32 `json:"healthPort,omitempty"`

	// Count is the number of servers that agents must be connected to, one per
	// control plane node. Default: 1. Not used with leaseCounting.
	Count *int32 `json:"count,omitempty"`

	// CertFile and KeyFile are shown to agents. Default: apiserver.crt and
	// apiserver.key in controlPlane.pkiDir, as both share the machine (KON-36).
	CertFile string `json:"certFile,omitempty"`
	// KeyFile belongs to CertFile.
	KeyFile string `json:"keyFile,omitempty"`

	// Kubeconfig of identity system:konnectivity-server. Default:
	// /etc/kubernetes/konnectivity-server.conf.
	Kubeconfig string `json:"kubeconfig,omitempty"`

	// DrainTimeout is for how long tunnelled connections may go on when the server
	// is to stop. Default: 5s. The socket is closed meanwhile and until the next
	// server has started; kube-apiserver's GRPC client tries for 30 s to connect, so
	// that no call fails if this stays well below that, but webhooks of which the
	// timeout is shorter do. 0s ends connections at once. Whole seconds; the Pod's
	// terminationGracePeriodSeconds is 10 more. The reference server ignores it: give
	// that --graceful-shutdown-timeout by extraArgs if its release has it.
	DrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`

	// Resources of the container. Default: requests of 50m CPU and 64Mi memory.
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// ExtraArgs are further flags of proxy-server. Default: none.
	ExtraArgs []Argument `json:"extraArgs,omitempty"`
}

// KonnectivityAgent configures what only the agents have.
type KonnectivityAgent struct {
	// Form is DaemonSet or Deployment. Default: DaemonSet. Not every node needs an
	// agent: any agent that reaches a node can carry its traffic.
	Form Form `json:"form,omitempty"`

	// Replicas of the Deployment form. Default: 2.
	Replicas *int32 `json:"replicas,omitempty"`

	// Image of the agent; must hold /proxy-agent. Default: this release's
	// konnectivity-agent.
	Image string `json:"image,omitempty"`

	// AdminPort serves profiles on loopback. Default: 8133.
	AdminPort int32 `json:"adminPort,omitempty"`

	// HealthPort serves /healthz, /readyz and /metrics. Default: 8134.
	HealthPort int32 `json:"healthPort,omitempty"`

	// HostNetwork runs agents in the node's network. Default: false. If true, the
	// agent's ports must differ from the server's, or both would clash on control
	// plane nodes (KON-74).
	HostNetwork *bool `json:"hostNetwork,omitempty"`

	// Identifiers of the agent for the server's strategies destHost and
	// defaultRoute, URL-encoded, such as default-route=true (KON-78). Default: none.
	Identifiers string `json:"identifiers,omitempty"`

	// NodeSelector of the Pods. Default: none.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations of the Pods. Default: CriticalAddonsOnly, which does not cover
	// the control plane taint: traffic to those nodes goes through other agents
	// (KON-75).
	Tolerations *Tolerations `json:"tolerations,omitempty"`

	// Resources of the container. Default: requests of 50m CPU and 64Mi memory.
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// ExtraArgs are further flags of proxy-agent. Default: none.
	ExtraArgs []Argument `json:"extraArgs,omitempty"`
}
