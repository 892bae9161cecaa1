// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	config "github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Types of conditions of a TunnelPool. Both are True when all is well.
const (
	// PoolAccepted is True if the operator runs the pool as its spec says.
	PoolAccepted = "Accepted"
	// PoolAvailable is True if the pool has ready agents.
	PoolAvailable = "Available"
)

// PoolForm is the kind of workload that runs a pool.
// +kubebuilder:validation:Enum=Deployment;DaemonSet
type PoolForm string

// The forms of a pool.
const (
	PoolDeployment PoolForm = "Deployment"
	PoolDaemonSet  PoolForm = "DaemonSet"
)

// TunnelPool is a group of tunnel agents besides those of the Bundle, for example on other
// nodes or with other identifiers. An autoscaler may scale it.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:scope=Namespaced,shortName=tpool,categories=fairlead
// +kubebuilder:selectablefield:JSONPath=`.spec.form`
// +kubebuilder:printcolumn:name="Form",type=string,JSONPath=`.spec.form`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.spec.serverAddresses[0].host`,priority=1
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
	Status TunnelPoolStatus `json:"status,omitempty"`
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
	Form PoolForm `json:"form,omitempty"`

	// replicas of form Deployment. Leave it to the autoscaler if there is one. Default: 2.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5000
	Replicas *int32 `json:"replicas,omitempty"`

	// serverAddresses are where agents dial the server. Default: the Bundle's, also for the
	// host or the port alone.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1
	ServerAddresses []ServerAddress `json:"serverAddresses,omitempty"`

	// hostNetwork is Enabled or Disabled. Default: as in the Bundle.
	// +optional
	HostNetwork HostNetwork `json:"hostNetwork,omitempty"`

	// identifiers of the agents. Default: as in the Bundle.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Identifiers []Identifier `json:"identifiers,omitempty"`

	TunnelPoolPods `json:",inline"`
}

// TunnelPoolPods is what the versions of a TunnelPool have in common.
type TunnelPoolPods struct {
	// image of the agent. Default: as in the Bundle.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// nodeSelector of the Pods. Default: as in the Bundle.
	// +optional
	// +kubebuilder:validation:MaxProperties=128
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations of the Pods. Default: as in the Bundle.
	// +optional
	Tolerations *config.Tolerations `json:"tolerations,omitempty"`

	// resources of the container. Default: as in the Bundle.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// TunnelPoolStatus is what runs.
type TunnelPoolStatus struct {
	// conditions are Accepted and Available.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// replicas is the number of Pods that there are.
	// +optional
	Replicas int32 `json:"replicas"`

	// readyReplicas is the number of ready Pods.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// selector selects the Pods, for autoscalers.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Selector string `json:"selector,omitempty"`
}
