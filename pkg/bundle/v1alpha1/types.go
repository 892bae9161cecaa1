// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bundle is the configuration of everything fairlead renders for one cluster: the
// spec of an object of kind Bundle. All fields are optional: an empty one is the
// default bundle.
type Bundle struct {
	// namespace holds all namespaced objects. Default: kube-system. In any other
	// namespace the API server's stock FlowSchemas put the requests of the second
	// scheduler into priority level workload-low, where they wait behind ordinary
	// controllers; create a FlowSchema of your own if you change this. A namespace
	// that not every cluster has is rendered, with the Pod Security level that its
	// Pods need: privileged for the Konnectivity server, restricted otherwise.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`

	// scheduler is the second scheduler.
	// +optional
	Scheduler Scheduler `json:"scheduler,omitempty"`

	// konnectivity is the tunnel from the API server to the nodes.
	// +optional
	Konnectivity Konnectivity `json:"konnectivity,omitempty"`

	// gateway is the shared way into the cluster network. It is off by default.
	// +optional
	Gateway Gateway `json:"gateway,omitempty"`

	// tunnelAPI is the extension API server that shows the tunnel's state. It is off by
	// default.
	// +optional
	TunnelAPI TunnelAPI `json:"tunnelAPI,omitempty"`

	// aggregation is the front proxy of the API server's aggregation layer.
	// +optional
	Aggregation Aggregation `json:"aggregation,omitempty"`

	// pki says how certificates and keys are made.
	// +optional
	PKI PKI `json:"pki,omitempty"`

	// controlPlane says where things are on a control plane node.
	// +optional
	ControlPlane ControlPlane `json:"controlPlane,omitempty"`
}

// Argument is one further command line flag of a component. A flag that the
// bundle sets itself is refused; the error names the field to set instead.
type Argument struct {
	// name of the flag without leading dashes.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name,omitempty"`
	// value of the flag, passed as --name=value. May be empty.
	// +optional
	// +kubebuilder:validation:MaxLength=131072
	Value string `json:"value,omitempty"`
}

// Aggregation configures the front proxy: the identity with which the API
// server speaks to extension API servers. It always has a separate CA;
// deliberately, no field shares one.
type Aggregation struct {
	// allowedNames are the common names that may speak for others by request
	// header (--requestheader-allowed-names). Default: [front-proxy-client], the
	// name that kubeadm uses and that the issued certificate has. At least one: an
	// empty list would accept every certificate of the front proxy CA. It is used
	// where fairlead writes the flags itself; kubeadm sets its own.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	AllowedNames []string `json:"allowedNames,omitempty"`

	// enableAggregatorRouting sends aggregated requests and Service-backed
	// webhooks to endpoint addresses instead of the cluster IP. Default: false.
	// Needed where kube-proxy does not run on the API server's host.
	// +optional
	EnableAggregatorRouting *bool `json:"enableAggregatorRouting,omitempty"`
}

// KeyAlgorithm names a kind of private key.
// +kubebuilder:validation:Enum=RSA-2048;ECDSA-P256
type KeyAlgorithm string

// The key algorithms that can be chosen.
const (
	// KeyRSA2048 is RSA with 2048 bits.
	KeyRSA2048 KeyAlgorithm = "RSA-2048"
	// KeyECDSAP256 is ECDSA on the curve P-256.
	KeyECDSAP256 KeyAlgorithm = "ECDSA-P256"
)

// PKI configures certificates made by fairlead.
type PKI struct {
	// algorithm of private keys: RSA-2048 or ECDSA-P256. Default: RSA-2048, as in
	// the Konnectivity documentation. ECDSA-P256 makes handshakes cheaper.
	// +optional
	Algorithm KeyAlgorithm `json:"algorithm,omitempty"`

	// validity of issued certificates. Default: 9000h (375 days). A certificate
	// never outlives its CA: its end is cut to the CA's.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="is no positive duration such as 12s"
	Validity *metav1.Duration `json:"validity,omitempty"`

	// caValidity is the validity of CAs. Default: 87600h (ten years).
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="is no positive duration such as 12s"
	CAValidity *metav1.Duration `json:"caValidity,omitempty"`
}

// ControlPlane tells where things are on a control plane node. The defaults are
// kubeadm's.
type ControlPlane struct {
	// pkiDir holds the cluster's certificates. Default: /etc/kubernetes/pki. It is
	// mounted read-only into the Konnectivity server, so every certificate that
	// the server reads must be inside.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	PKIDir string `json:"pkiDir,omitempty"`

	// manifestsDir is the kubelet's static Pod directory. Default:
	// /etc/kubernetes/manifests.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	ManifestsDir string `json:"manifestsDir,omitempty"`

	// egressSelectorFile is where kube-apiserver reads its egress selector
	// configuration. Default:
	// /etc/kubernetes/konnectivity/egress-selector-configuration.yaml. Its
	// directory is mounted read-only into kube-apiserver, so it must be a
	// separate directory.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	EgressSelectorFile string `json:"egressSelectorFile,omitempty"`
}

// Tolerations is a list of tolerations of which an explicit empty list differs
// from an absent one: absent means the default, empty means none.
// +listType=atomic
// +kubebuilder:validation:MaxItems=128
type Tolerations []corev1.Toleration
