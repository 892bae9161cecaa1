// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import corev1 "k8s.io/api/core/v1"

// TunnelAPI configures the extension API server that shows the tunnel's agents, servers and
// connections: "kubectl get tunnelagents". It needs the Konnectivity server and agents of
// this bundle.
type TunnelAPI struct {
	// Enabled renders the API server, and lets the Konnectivity servers show it their
	// state. Default: false.
	Enabled *bool `json:"enabled,omitempty"`

	// Connect lets users open TCP connections through agents: "fairlead socks5 --via api". A
	// user needs rights to the subresource tunnelagents/portforward and to the destination.
	// Default: false.
	Connect *bool `json:"connect,omitempty"`

	// Replicas of the Deployment. Default: 2. While no replica answers, kube-apiserver
	// deletes no namespace.
	Replicas *int32 `json:"replicas,omitempty"`

	// Image of the API server; must hold /fairlead-apiserver. Default: this release's
	// fairlead-apiserver.
	Image string `json:"image,omitempty"`

	// Port on which the Pods serve the API. Default: 6443. The Service's port is 443.
	Port int32 `json:"port,omitempty"`

	// StatePort is the port on which the Konnectivity servers show their state, with the
	// certificate that agents see and to this API server's ServiceAccount alone.
	// Default: 8093.
	StatePort int32 `json:"statePort,omitempty"`

	// ClusterIP is the cluster IP of the Service. Default: Kubernetes chooses one. If you
	// set it, the Konnectivity servers connect to the API themselves instead of through an
	// agent, so that it answers also without agents. The address must be free, in the
	// cluster's range of Service addresses, and reachable from control plane nodes, as it
	// is with kube-proxy.
	ClusterIP string `json:"clusterIP,omitempty"`

	// CertificateSecret is the Secret with tls.crt and tls.key, for the name
	// fairlead-apiserver.<namespace>.svc. Default: fairlead-apiserver-tls, which
	// "fairlead install" makes and renews. Any other one has to exist.
	CertificateSecret string `json:"certificateSecret,omitempty"`

	// CABundle are the CA certificates, in PEM, that verify the certificate in
	// CertificateSecret. Required with a Secret of yours. Default: the CA that
	// "fairlead install" makes.
	CABundle string `json:"caBundle,omitempty"`

	// Resources of the container. Default: requests of 50m CPU and 64Mi memory, and a
	// memory limit of 512Mi.
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// ExtraArgs are further flags of fairlead-apiserver. Default: none.
	ExtraArgs []Argument `json:"extraArgs,omitempty"`
}
