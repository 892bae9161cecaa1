// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	config "github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// GroupVersion of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "fairlead.dev", Version: "v1alpha1"}

// AddToScheme adds the types to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Bundle{}, &BundleList{}, &TunnelPool{}, &TunnelPoolList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Bundle is the configuration of Fairlead in a cluster. Use fairlead.dev/v1beta1.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:deprecatedversion:warning="fairlead.dev/v1alpha1 Bundle is deprecated; use fairlead.dev/v1beta1 Bundle"
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=flb,categories=fairlead
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
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
	Status v1beta1.BundleStatus `json:"status,omitempty"`
}

// BundleSpec is the configuration of everything Fairlead renders for one cluster.
type BundleSpec struct {
	config.Bundle `json:",inline"`

	// managementPolicy says what the operator does: Enforce or Observe. Default: Enforce.
	// +optional
	ManagementPolicy v1beta1.ManagementPolicy `json:"managementPolicy,omitempty"`

	// deletionPolicy says what the operator does when the Bundle is deleted: Orphan or Delete.
	// Default: Orphan.
	// +optional
	DeletionPolicy v1beta1.DeletionPolicy `json:"deletionPolicy,omitempty"`
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

// TunnelPool is a group of tunnel agents. Use fairlead.dev/v1beta1.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:deprecatedversion:warning="fairlead.dev/v1alpha1 TunnelPool is deprecated; use fairlead.dev/v1beta1 TunnelPool"
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:scope=Namespaced,shortName=tpool,categories=fairlead
// +kubebuilder:printcolumn:name="Form",type=string,JSONPath=`.spec.form`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TunnelPool struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what you want.
	// +optional
	Spec TunnelPoolSpec `json:"spec,omitempty"`

	// status is what runs.
	// +optional
	Status v1beta1.TunnelPoolStatus `json:"status,omitempty"`
}

// TunnelPoolList is a list of pools.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type TunnelPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TunnelPool `json:"items"`
}

// TunnelPoolSpec configures agents. What is unset is as in the Bundle.
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || self.?form.orValue('Deployment') == 'Deployment'",fieldPath=".replicas",reason=FieldValueForbidden,message="a DaemonSet runs one Pod per node: remove replicas, or set form: Deployment"
type TunnelPoolSpec struct {
	// form is Deployment or DaemonSet. Default: Deployment.
	// +optional
	Form v1beta1.PoolForm `json:"form,omitempty"`

	// replicas of form Deployment. Default: 2.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5000
	Replicas *int32 `json:"replicas,omitempty"`

	// serverHost is the DNS name or IP address that agents dial. Default: the Bundle's.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServerHost string `json:"serverHost,omitempty"`

	// agentPort is the port of the server that agents dial. Default: the Bundle's.
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=49151
	AgentPort int32 `json:"agentPort,omitempty"`

	// hostNetwork runs agents in the node's network.
	// +optional
	HostNetwork *bool `json:"hostNetwork,omitempty"`

	// identifiers of the agents, URL-encoded, such as ipv4=$(HOST_IP).
	// +optional
	// +kubebuilder:validation:MaxLength=16575
	// +kubebuilder:validation:XValidation:rule="self.split('&').size() <= 64",message="must have at most 64 identifiers"
	// +kubebuilder:validation:XValidation:rule="self.split('&').all(i, i.size() <= 258)",message="an identifier must have at most 253 characters after its type and ="
	Identifiers string `json:"identifiers,omitempty"`

	v1beta1.TunnelPoolPods `json:",inline"`
}
