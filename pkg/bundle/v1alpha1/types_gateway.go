// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import corev1 "k8s.io/api/core/v1"

// GatewayRulesVersion is the apiVersion of rule files, whose kind is GatewayRules.
const GatewayRulesVersion = "fairlead.dev/v1alpha1"

// Gateway configures the shared way into the cluster network: "fairlead socks5" with TLS,
// tokens and access reviews.
type Gateway struct {
	// Enabled renders the gateway. Default: false.
	Enabled *bool `json:"enabled,omitempty"`

	// Form is Deployment or StaticPod. Default: Deployment, which connects from the Pod
	// network. A StaticPod runs on control plane nodes and connects through the
	// Konnectivity server there; use it if the nodes' network cannot be reached from
	// where clients are, or if no Pod may accept connections from outside.
	Form Form `json:"form,omitempty"`

	// Replicas of the Deployment form. Default: 2.
	Replicas *int32 `json:"replicas,omitempty"`

	// Image of the gateway; must hold /fairlead. Default: this release's fairlead.
	Image string `json:"image,omitempty"`

	// Port accepts SOCKS5 and HTTP CONNECT, both with TLS only. Default: 1080.
	Port int32 `json:"port,omitempty"`

	// HealthPort serves /healthz, /readyz and /metrics. Default: 1081. A static Pod
	// serves it on loopback.
	HealthPort int32 `json:"healthPort,omitempty"`

	// ServiceType is the type of the Service of the Deployment form: ClusterIP, NodePort
	// or LoadBalancer. Default: ClusterIP.
	ServiceType corev1.ServiceType `json:"serviceType,omitempty"`

	// Hosts are further DNS names and IP addresses in the serving certificate, such as
	// that of a load balancer. Default: none. The Service's names are always in it.
	Hosts []string `json:"hosts,omitempty"`

	// TokenAudiences are the audiences of the tokens that the gateway accepts. Default:
	// [fairlead-gateway], so that a token for the gateway is of no use at the API server,
	// and the gateway never sees one that is.
	TokenAudiences []string `json:"tokenAudiences,omitempty"`

	// ClientCertificates accepts client certificates of the cluster's CA, as kubectl
	// presents them to an https proxy. Default: false.
	ClientCertificates *bool `json:"clientCertificates,omitempty"`

	// Allow are addresses outside of the cluster that all clients may reach: CIDRs,
	// addresses or host names, each with an optional :port. Default: none. If
	// allow-destinations in konnectivity.agent.extraArgs limits the agents, the gateway
	// reaches nothing but the API server and what either list names.
	Allow []string `json:"allow,omitempty"`

	// Deny are destinations that no client may reach, in the form of Allow. Default:
	// none. Loopback, link-local and metadata addresses are always denied, and so is what
	// deny-destinations in konnectivity.agent.extraArgs names.
	Deny []string `json:"deny,omitempty"`

	// Rules say who may reach what, on top of access reviews. Default: none, so that
	// RBAC alone decides. The gateway reads changes without a restart.
	Rules *GatewayRules `json:"rules,omitempty"`

	// NetworkPolicy renders a NetworkPolicy that allows connections to Port and
	// HealthPort only. Default: true.
	NetworkPolicy *bool `json:"networkPolicy,omitempty"`

	// CertificateSecret is the Secret with tls.crt and tls.key of the Deployment form.
	// Default: fairlead-gateway-tls, which "fairlead install" makes and renews. Any other
	// one has to exist.
	CertificateSecret string `json:"certificateSecret,omitempty"`

	// CertFile and KeyFile are the serving certificate of the StaticPod form. Default:
	// fairlead-gateway.crt and fairlead-gateway.key in controlPlane.pkiDir.
	CertFile string `json:"certFile,omitempty"`
	// KeyFile belongs to CertFile.
	KeyFile string `json:"keyFile,omitempty"`

	// Kubeconfig of the StaticPod form, of user fairlead:gateway. Default:
	// /etc/kubernetes/fairlead-gateway.conf.
	Kubeconfig string `json:"kubeconfig,omitempty"`

	// NodeSelector of the Deployment's Pods. Default: none.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations of the Deployment's Pods. Default: none.
	Tolerations *Tolerations `json:"tolerations,omitempty"`

	// Resources of the container. Default: requests of 50m CPU and 64Mi memory, and a
	// memory limit of 512Mi.
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// ExtraArgs are further flags of "fairlead socks5". Default: none.
	ExtraArgs []Argument `json:"extraArgs,omitempty"`
}

// GatewayRules is the content of the gateway's rule file. What no rule of Allow matches is
// denied; a rule of Deny wins.
type GatewayRules struct {
	Allow []GatewayRule `json:"allow,omitempty"`
	Deny  []GatewayRule `json:"deny,omitempty"`
}

// GatewayRule matches clients and destinations. An empty field matches everything; a rule of
// Allow matches addresses outside of the cluster only if Kinds or Addresses name them.
type GatewayRule struct {
	// Name is for refusals and logs.
	Name string `json:"name,omitempty"`
	// Users, Groups, Namespaces and Names may contain "*". Names are those of objects and, for External,
	// the host that the client sent.
	Users      []string `json:"users,omitempty"`
	Groups     []string `json:"groups,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"`
	Names      []string `json:"names,omitempty"`
	// Kinds are Service, Pod, Node and External.
	Kinds []string `json:"kinds,omitempty"`
	// Ports are numbers or ranges such as 8000-8100.
	Ports []string `json:"ports,omitempty"`
	// Addresses are CIDRs of the resolved address. A rule of Deny also holds for an address that the client
	// sent, such as a cluster IP.
	Addresses []string `json:"addresses,omitempty"`
}
