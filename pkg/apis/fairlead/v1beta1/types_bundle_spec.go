// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	config "github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// BundleSpec is the configuration of everything Fairlead renders for one cluster. All
// fields are optional. Defaults are filled in when the bundle is rendered and never
// stored, so that a release can improve one.
type BundleSpec struct {
	// managementPolicy says what the operator does: Enforce applies the bundle, and names
	// fields that another owner has set in the status, without taking them; Observe only
	// reports. Default: Enforce. Commands ignore it.
	// +optional
	ManagementPolicy ManagementPolicy `json:"managementPolicy,omitempty"`

	// deletionPolicy says what the operator does when the Bundle is deleted: Orphan keeps all
	// objects in the cluster; Delete removes them first, the agents of the tunnel last of
	// the workloads, and refuses while kube-apiserver uses the tunnel. Delete has no effect with
	// managementPolicy Observe. Default: Orphan. Commands ignore it.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

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
	Scheduler SchedulerSpec `json:"scheduler,omitempty"`

	// konnectivity is the tunnel from the API server to the nodes.
	// +optional
	Konnectivity KonnectivitySpec `json:"konnectivity,omitempty"`

	// gateway is the shared way into the cluster network.
	// +optional
	Gateway config.Gateway `json:"gateway,omitempty"`

	// tunnelAPI is the extension API server that shows the tunnel's state. It is off by
	// default.
	// +optional
	TunnelAPI config.TunnelAPI `json:"tunnelAPI,omitempty"`

	// aggregation is the front proxy of the API server's aggregation layer.
	// +optional
	Aggregation config.Aggregation `json:"aggregation,omitempty"`

	// pki says how certificates and keys are made.
	// +optional
	PKI PKISpec `json:"pki,omitempty"`

	// controlPlane says where things are on a control plane node.
	// +optional
	ControlPlane config.ControlPlane `json:"controlPlane,omitempty"`
}

// PKISpec configures certificates made by fairlead.
type PKISpec struct {
	// algorithm of private keys: RSA-2048 or ECDSA-P256. Default: RSA-2048, as in
	// the Konnectivity documentation. ECDSA-P256 makes handshakes cheaper.
	// +optional
	Algorithm config.KeyAlgorithm `json:"algorithm,omitempty"`

	// validitySeconds of issued certificates. Default: 32400000 (375 days). A certificate
	// never outlives its CA: its end is cut to the CA's.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ValiditySeconds *int32 `json:"validitySeconds,omitempty"`

	// caValiditySeconds is the validity of CAs. Default: 315360000 (ten years).
	// +optional
	// +kubebuilder:validation:Minimum=1
	CAValiditySeconds *int32 `json:"caValiditySeconds,omitempty"`
}
