// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"

	config "github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Types of conditions of a SchedulerProfile.
const (
	// ProfileAccepted is True if the profile is valid and its name is free.
	ProfileAccepted = "Accepted"
	// ProfileProgrammed is True if the second scheduler's configuration has it.
	ProfileProgrammed = "Programmed"
)

// SchedulingStrategy names a built-in profile, or Raw.
// +kubebuilder:validation:Enum=Standard;Binpack;Spread;Batch;Raw
type SchedulingStrategy string

// The strategies.
const (
	StrategyStandard SchedulingStrategy = "Standard"
	StrategyBinpack  SchedulingStrategy = "Binpack"
	StrategySpread   SchedulingStrategy = "Spread"
	StrategyBatch    SchedulingStrategy = "Batch"
	StrategyRaw      SchedulingStrategy = "Raw"
)

// SchedulerProfile is a profile of the second scheduler: a name that Pods may set in
// spec.schedulerName.
//
// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=fsp,categories=fairlead
// +kubebuilder:selectablefield:JSONPath=`.spec.schedulerName`
// +kubebuilder:selectablefield:JSONPath=`.spec.strategy`
// +kubebuilder:printcolumn:name="Scheduler Name",type=string,JSONPath=`.spec.schedulerName`
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.strategy`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Programmed",type=string,JSONPath=`.status.conditions[?(@.type=="Programmed")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SchedulerProfile struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the profile.
	// +required
	Spec SchedulerProfileSpec `json:"spec"`

	// status says whether Pods can use the profile.
	// +optional
	Status SchedulerProfileStatus `json:"status,omitempty"`
}

// SchedulerProfileList is a list of profiles.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type SchedulerProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SchedulerProfile `json:"items"`
}

// SchedulerProfileSpec is a union: strategy names the member that may be set.
// +kubebuilder:validation:XValidation:rule="self.strategy == 'Binpack' || !has(self.binpack)",fieldPath=".binpack",reason=FieldValueForbidden,message="needs strategy: Binpack"
// +kubebuilder:validation:XValidation:rule="self.strategy == 'Spread' || !has(self.spread)",fieldPath=".spread",reason=FieldValueForbidden,message="needs strategy: Spread"
// +kubebuilder:validation:XValidation:rule="self.strategy == 'Batch' || !has(self.batch)",fieldPath=".batch",reason=FieldValueForbidden,message="needs strategy: Batch"
// +kubebuilder:validation:XValidation:rule="(self.strategy == 'Raw') == has(self.raw)",message="raw and strategy: Raw belong together"
type SchedulerProfileSpec struct {
	// schedulerName is what Pods set in spec.schedulerName. It cannot be changed, and is
	// not default-scheduler.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: create another SchedulerProfile"
	// +kubebuilder:validation:XValidation:rule="self != 'default-scheduler'",message="is the default scheduler's: choose another name"
	SchedulerName string `json:"schedulerName"`

	// strategy is Standard, Binpack, Spread, Batch or Raw.
	// +required
	// +unionDiscriminator
	Strategy SchedulingStrategy `json:"strategy"`

	// binpack fills nodes up before it takes the next.
	// +optional
	Binpack *BinpackStrategy `json:"binpack,omitempty"`

	// spread places Pods of one workload far from each other.
	// +optional
	Spread *SpreadStrategy `json:"spread,omitempty"`

	// batch is for many equal Pods at once.
	// +optional
	Batch *BatchStrategy `json:"batch,omitempty"`

	// raw is a profile of kubescheduler.config.k8s.io/v1 without schedulerName, for
	// example plugins and pluginConfig. The condition Accepted says whether the second
	// scheduler can load it.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Raw *runtime.RawExtension `json:"raw,omitempty"`
}

// BinpackStrategy has the settings of strategy Binpack.
type BinpackStrategy struct {
	// percentageOfNodesToScore of this profile. Default: 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	PercentageOfNodesToScore *int32 `json:"percentageOfNodesToScore,omitempty"`
	// resources by whose requests a node counts as full. Default: cpu and memory.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Resources []schedulerv1.ResourceSpec `json:"resources,omitempty"`
	// weight of fullness compared with the Pod's own preferences. Default: 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight *int32 `json:"weight,omitempty"`
}

// SpreadStrategy has the settings of strategy Spread.
type SpreadStrategy struct {
	// percentageOfNodesToScore of this profile. Default: 10.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	PercentageOfNodesToScore *int32 `json:"percentageOfNodesToScore,omitempty"`
	// topologyKeys over which to spread Pods that have no constraints.
	// Default: Kubernetes' own choice.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=317
	TopologyKeys []string `json:"topologyKeys,omitempty"`
	// maxSkew for topologyKeys. Default: 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxSkew *int32 `json:"maxSkew,omitempty"`
	// weight of spreading compared with the other scores. Default: 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight *int32 `json:"weight,omitempty"`
}

// BatchStrategy has the settings of strategy Batch.
type BatchStrategy struct {
	// percentageOfNodesToScore of this profile. Default: 0, kube-scheduler's choice.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	PercentageOfNodesToScore *int32 `json:"percentageOfNodesToScore,omitempty"`
	// placement is Pack or Spread. Default: Pack.
	// +optional
	Placement config.BatchPlacement `json:"placement,omitempty"`
}

// SchedulerProfileStatus says whether Pods can use the profile.
type SchedulerProfileStatus struct {
	// conditions are Accepted and Programmed.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
