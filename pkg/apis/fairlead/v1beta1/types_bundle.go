// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ManagementPolicy says what the operator does with a bundle.
// +kubebuilder:validation:Enum=Enforce;Observe
type ManagementPolicy string

// The management policies.
const (
	// ManagementEnforce applies the bundle.
	ManagementEnforce ManagementPolicy = "Enforce"
	// ManagementObserve reports what differs and changes nothing.
	ManagementObserve ManagementPolicy = "Observe"
)

// DeletionPolicy says what becomes of the objects in the cluster when the Bundle is deleted.
// +kubebuilder:validation:Enum=Orphan;Delete
type DeletionPolicy string

// The deletion policies.
const (
	// DeletionOrphan keeps the objects.
	DeletionOrphan DeletionPolicy = "Orphan"
	// DeletionDelete deletes the objects before the Bundle goes.
	DeletionDelete DeletionPolicy = "Delete"
)

// FinalizerUninstall is the finalizer of a Bundle whose objects the operator deletes with it.
const FinalizerUninstall = "fairlead.dev/uninstall"

// AnnotationIgnorePreflight of a Bundle lists findings that the operator ignores, as --ignore-preflight-errors
// of `fairlead install` does: IDs with commas between them. The tunnel that kube-apiserver uses is always kept.
const AnnotationIgnorePreflight = "fairlead.dev/ignore-preflight-errors"

// Types of conditions of a Bundle. All are True when all is well, except for Progressing and
// Stalled, which are False then.
const (
	// BundleReady sums up the others.
	BundleReady = "Ready"
	// BundleReconciled is True if all objects are as the bundle says.
	BundleReconciled = "Reconciled"
	// BundleTunnelAvailable is True if agents run.
	BundleTunnelAvailable = "TunnelAvailable"
	// BundleSchedulerLeading is True if a replica of the second scheduler leads.
	BundleSchedulerLeading = "SchedulerLeading"
	// BundleCertificatesValid is True if the operator's certificates are valid.
	BundleCertificatesValid = "CertificatesValid"
	// BundleControlPlaneReady is True if all API servers whose Pods are visible use the tunnel. It is Unknown if none is visible.
	BundleControlPlaneReady = "ControlPlaneReady"
	// BundleStorageMigrated is True if all objects of group fairlead.dev are stored in the newest version.
	BundleStorageMigrated = "StorageMigrated"
	// BundleProgressing is True while workloads roll out what the operator has applied, or
	// while the operator tries again after a failure.
	BundleProgressing = "Progressing"
	// BundleStalled is True if the operator cannot continue until a user changes the Bundle or the cluster.
	BundleStalled = "Stalled"
)

// Bundle is the configuration of Fairlead in a cluster: the second scheduler and the
// Konnectivity tunnel. A cluster has one, named default. The operator applies it; the
// commands of fairlead read it from a file.
//
// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=flb,categories=fairlead
// +kubebuilder:selectablefield:JSONPath=`.spec.managementPolicy`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.managementPolicy`,priority=1
// +kubebuilder:printcolumn:name="Tunnel",type=string,JSONPath=`.status.conditions[?(@.type=="TunnelAvailable")].status`,priority=1
// +kubebuilder:printcolumn:name="Scheduler",type=string,JSONPath=`.status.conditions[?(@.type=="SchedulerLeading")].status`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="a cluster has one Bundle: name it default"
// +kubebuilder:validation:XValidation:rule="(has(self.spec) && has(self.spec.__namespace__) ? self.spec.__namespace__ : 'kube-system') == (has(oldSelf.spec) && has(oldSelf.spec.__namespace__) ? oldSelf.spec.__namespace__ : 'kube-system')",fieldPath=".spec.namespace",message="is immutable: uninstall the bundle, and install it in the other namespace"
type Bundle struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata. The name is default.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what you want.
	// +optional
	Spec BundleSpec `json:"spec,omitempty"`

	// status is what the operator sees.
	// +optional
	Status BundleStatus `json:"status,omitempty"`
}

// BundleList is a list of bundles.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type BundleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Bundle `json:"items"`
}

// BundleStatus is what the operator sees.
type BundleStatus struct {
	// conditions are Ready, Reconciled, TunnelAvailable, SchedulerLeading,
	// CertificatesValid, ControlPlaneReady, StorageMigrated, Progressing and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// version of the operator.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version,omitempty"`

	// components are the workloads of the bundle.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Components []ComponentStatus `json:"components,omitempty"`

	// certificates are those that the operator renews.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Certificates []CertificateStatus `json:"certificates,omitempty"`

	// drift lists fields that another owner has set to another value.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Drift []DriftedField `json:"drift,omitempty"`
}

// ComponentStatus is a workload.
type ComponentStatus struct {
	// kind of the workload: Deployment or DaemonSet.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:MinLength=1
	Kind string `json:"kind,omitempty"`
	// name of the workload.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name,omitempty"`
	// desired number of Pods.
	// +optional
	Desired int32 `json:"desired"`
	// ready Pods.
	// +optional
	Ready int32 `json:"ready"`
	// image of the Pods of the newest template.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`
}

// CertificateStatus is a certificate that the operator renews.
type CertificateStatus struct {
	// name of the Secret with the certificate. The CA of the operator's webhook has the name of the Secret and -ca.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name,omitempty"`
	// notAfter is when the certificate expires.
	// +required
	NotAfter metav1.Time `json:"notAfter,omitzero"`
}

// DriftedField is a difference between the bundle and the cluster.
type DriftedField struct {
	// object is the kind and the name, as kind namespace/name.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:MinLength=1
	Object string `json:"object,omitempty"`
	// field of the object; empty if the object is missing or not Fairlead's.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Field string `json:"field,omitempty"`
	// owner is the field manager that has set the value.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Owner string `json:"owner,omitempty"`
	// message says what differs.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}
