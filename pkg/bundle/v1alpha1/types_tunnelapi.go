// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import corev1 "k8s.io/api/core/v1"

// TunnelAPI configures the extension API server that shows the tunnel's agents, servers and
// connections: "kubectl get tunnelagents". It needs the Konnectivity server and agents of
// this bundle.
type TunnelAPI struct {
	// enabled renders the API server, and lets the Konnectivity servers show it their
	// state. Default: false.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// connect lets users open TCP connections through agents: "fairlead socks5 --via api". A
	// user needs rights to the subresource tunnelagents/portforward and to the destination.
	// Default: false.
	// +optional
	Connect *bool `json:"connect,omitempty"`

	// replicas of the Deployment. Default: 2. While no replica answers, kube-apiserver
	// deletes no namespace.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// image of the API server; must hold /fairlead-apiserver. Default: this release's
	// fairlead-apiserver.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// port on which the Pods serve the API. Default: 6443. The Service's port is 443.
	// +optional
	Port int32 `json:"port,omitempty"`

	// statePort is the port on which the Konnectivity servers show their state, with the
	// certificate that agents see and to this API server's ServiceAccount alone.
	// Default: 8093.
	// +optional
	StatePort int32 `json:"statePort,omitempty"`

	// clusterIP is the cluster IP of the Service. Default: Kubernetes chooses one. If you
	// set it, the Konnectivity servers connect to the API themselves instead of through an
	// agent, so that it answers also without agents. The address must be free, in the
	// cluster's range of Service addresses, and reachable from control plane nodes, as it
	// is with kube-proxy.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ClusterIP string `json:"clusterIP,omitempty"`

	// certificateSecret is the Secret with tls.crt and tls.key, for the name
	// fairlead-apiserver.<namespace>.svc. Default: fairlead-apiserver-tls, which
	// "fairlead install" makes and renews. Any other one has to exist.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	CertificateSecret string `json:"certificateSecret,omitempty"`

	// caBundle are the CA certificates, in PEM, that verify the certificate in
	// CertificateSecret. Required with a Secret of yours. Default: the CA that
	// "fairlead install" makes.
	// +optional
	// +kubebuilder:validation:MaxLength=262144
	CABundle string `json:"caBundle,omitempty"`

	// resources of the container. Default: requests of 50m CPU and 64Mi memory, and a
	// memory limit of 512Mi.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// extraArgs are further flags of fairlead-apiserver. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	ExtraArgs []Argument `json:"extraArgs,omitempty"`
}
