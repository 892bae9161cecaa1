// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import corev1 "k8s.io/api/core/v1"

// GatewayRulesVersion is the apiVersion of rule files, whose kind is GatewayRules.
const GatewayRulesVersion = "fairlead.dev/v1alpha1"

// Gateway configures the shared way into the cluster network: "fairlead socks5" with TLS,
// tokens and access reviews.
type Gateway struct {
	// enabled renders the gateway. Default: false.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// form is Deployment or StaticPod. Default: Deployment, which connects from the Pod
	// network. A StaticPod runs on control plane nodes and connects through the
	// Konnectivity server there; use it if the nodes' network cannot be reached from
	// where clients are, or if no Pod may accept connections from outside.
	// +optional
	Form Form `json:"form,omitempty"`

	// replicas of the Deployment form. Default: 2.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// image of the gateway; must hold /fairlead. Default: this release's fairlead.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// port accepts SOCKS5 and HTTP CONNECT, both with TLS only. Default: 1080.
	// +optional
	Port int32 `json:"port,omitempty"`

	// healthPort serves /healthz, /readyz and /metrics. Default: 1081. A static Pod
	// serves it on loopback.
	// +optional
	HealthPort int32 `json:"healthPort,omitempty"`

	// serviceType is the type of the Service of the Deployment form: ClusterIP, NodePort
	// or LoadBalancer. Default: ClusterIP.
	// +optional
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
	ServiceType corev1.ServiceType `json:"serviceType,omitempty"`

	// hosts are further DNS names and IP addresses in the serving certificate, such as
	// that of a load balancer. Default: none. The Service's names are always in it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	Hosts []string `json:"hosts,omitempty"`

	// tokenAudiences are the audiences of the tokens that the gateway accepts. Default:
	// [fairlead-gateway], so that a token for the gateway is of no use at the API server,
	// and the gateway never sees one that is.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	TokenAudiences []string `json:"tokenAudiences,omitempty"`

	// clientCertificates accepts client certificates of the cluster's CA, as kubectl
	// presents them to an https proxy. Default: false.
	// +optional
	ClientCertificates *bool `json:"clientCertificates,omitempty"`

	// allow are addresses outside of the cluster that all clients may reach: CIDRs,
	// addresses or host names, each with an optional :port. Default: none. If
	// allow-destinations in konnectivity.agent.extraArgs limits the agents, the gateway
	// reaches nothing but the API server and what either list names.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=512
	Allow []string `json:"allow,omitempty"`

	// deny are destinations that no client may reach, in the form of Allow. Default:
	// none. Loopback, link-local and metadata addresses are always denied, and so is what
	// deny-destinations in konnectivity.agent.extraArgs names.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=512
	Deny []string `json:"deny,omitempty"`

	// rules say who may reach what, on top of access reviews. Default: none, so that
	// RBAC alone decides. The gateway reads changes without a restart.
	// +optional
	Rules *GatewayRules `json:"rules,omitempty"`

	// networkPolicy renders a NetworkPolicy that allows connections to Port and
	// HealthPort only. Default: true.
	// +optional
	NetworkPolicy *bool `json:"networkPolicy,omitempty"`

	// certificateSecret is the Secret with tls.crt and tls.key of the Deployment form.
	// Default: fairlead-gateway-tls, which "fairlead install" makes and renews. Any other
	// one has to exist.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	CertificateSecret string `json:"certificateSecret,omitempty"`

	// certFile and keyFile are the serving certificate of the StaticPod form. Default:
	// fairlead-gateway.crt and fairlead-gateway.key in controlPlane.pkiDir.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	CertFile string `json:"certFile,omitempty"`
	// keyFile belongs to certFile.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	KeyFile string `json:"keyFile,omitempty"`

	// kubeconfig of the StaticPod form, of user fairlead:gateway. Default:
	// /etc/kubernetes/fairlead-gateway.conf.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Kubeconfig string `json:"kubeconfig,omitempty"`

	// nodeSelector of the Deployment's Pods. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=128
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations of the Deployment's Pods. Default: none.
	// +optional
	Tolerations *Tolerations `json:"tolerations,omitempty"`

	// resources of the container. Default: requests of 50m CPU and 64Mi memory, and a
	// memory limit of 512Mi.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// extraArgs are further flags of "fairlead socks5". Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	ExtraArgs []Argument `json:"extraArgs,omitempty"`
}

// GatewayRules is the content of the gateway's rule file. What no rule of Allow matches is
// denied; a rule of Deny wins.
type GatewayRules struct {
	// allow lists what clients may reach.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Allow []GatewayRule `json:"allow,omitempty"`
	// deny lists what clients may not reach.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Deny []GatewayRule `json:"deny,omitempty"`
}

// GatewayRule matches clients and destinations. An empty field matches everything; a rule of
// Allow matches addresses outside of the cluster only if Kinds or Addresses name them.
type GatewayRule struct {
	// name is for refusals and logs.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// users of the cluster; each may contain "*".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=1024
	Users []string `json:"users,omitempty"`
	// groups of the user; each may contain "*".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=1024
	Groups []string `json:"groups,omitempty"`
	// namespaces of the destination; each may contain "*".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=253
	Namespaces []string `json:"namespaces,omitempty"`
	// names of the destination: those of objects and, for External, the host that the
	// client sent. Each may contain "*".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=253
	Names []string `json:"names,omitempty"`
	// kinds are Service, Pod, Node and External.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	Kinds []string `json:"kinds,omitempty"`
	// ports are numbers or ranges such as 8000-8100.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=32
	Ports []string `json:"ports,omitempty"`
	// addresses are CIDRs of the resolved address. A rule of Deny also holds for an address that the client
	// sent, such as a cluster IP.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=128
	Addresses []string `json:"addresses,omitempty"`
}
