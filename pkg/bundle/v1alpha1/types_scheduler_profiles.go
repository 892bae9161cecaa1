// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	schedulerv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
)

// Names that Pods put into spec.schedulerName for the built-in profiles.
const (
	DefaultBinpackProfile = "fairlead-binpack"
	DefaultSpreadProfile  = "fairlead-spread"
	DefaultBatchProfile   = "fairlead-batch"
)

// BuiltInProfiles are the profiles that Fairlead brings along. One that is there, be it empty, is rendered;
// docs/scheduler-profiles.md says for whom each is and what it costs. They need this release's scheduler image, as
// they enable Fairlead's plugins.
type BuiltInProfiles struct {
	// standard places Pods as kube-scheduler does by default.
	// +optional
	Standard *StandardProfile `json:"standard,omitempty"`

	// binpack fills nodes up before it takes the next.
	// +optional
	Binpack *BinpackProfile `json:"binpack,omitempty"`

	// spread is for services: Pods of one workload far from each other.
	// +optional
	Spread *SpreadProfile `json:"spread,omitempty"`

	// batch is for many equal Pods at once, best with one Pod per node.
	// +optional
	Batch *BatchProfile `json:"batch,omitempty"`
}

// StandardProfile is kube-scheduler's own default profile with Fairlead's plugins, so
// that it gets along with the default scheduler.
type StandardProfile struct {
	// schedulerName that Pods name. Default: my-scheduler.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SchedulerName string `json:"schedulerName,omitempty"`
}

// BinpackProfile scores nodes by how full they are.
type BinpackProfile struct {
	// schedulerName that Pods name. Default: fairlead-binpack.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SchedulerName string `json:"schedulerName,omitempty"`

	// percentageOfNodesToScore of this profile. Default: 100, since a fuller node that
	// was not looked at is room wasted.
	// +optional
	PercentageOfNodesToScore *int32 `json:"percentageOfNodesToScore,omitempty"`

	// resources by whose requests a node counts as full, with weights from 1 to 100.
	// Default: cpu and memory with weight 1 each.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Resources []schedulerv1.ResourceSpec `json:"resources,omitempty"`

	// weight of fullness compared with the Pod's own preferences (node affinity 2, untolerated
	// soft taints 3), from 1 to 100. Default: 5.
	// +optional
	Weight *int32 `json:"weight,omitempty"`
}

// SpreadProfile scores nodes by how few Pods of the same workload are near.
type SpreadProfile struct {
	// schedulerName that Pods name. Default: fairlead-spread.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SchedulerName string `json:"schedulerName,omitempty"`

	// percentageOfNodesToScore of this profile. Default: 10, but never fewer than 100
	// nodes, which kube-scheduler sees to. That is the share that kube-scheduler itself
	// takes of 5,000 nodes (of 1,000 it takes 42 %): it looks at nodes in turn, zone by
	// zone, so that a hundred of them are spread like all. 0 is kube-scheduler's choice.
	// +optional
	PercentageOfNodesToScore *int32 `json:"percentageOfNodesToScore,omitempty"`

	// topologyKeys over which to spread Pods that say nothing of it themselves. Default:
	// none, which is Kubernetes' own choice (hosts with a skew of 3 and zones with one of
	// 5), the only one that also works on nodes without a zone label: with keys given
	// here, nodes that lack one of the labels are scored last.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=317
	TopologyKeys []string `json:"topologyKeys,omitempty"`

	// maxSkew for TopologyKeys, at least 1. Default: 1. Another one is refused without keys.
	// +optional
	MaxSkew *int32 `json:"maxSkew,omitempty"`

	// weight of spreading compared with the other scores, from 1 to 100. Default: 5
	// (kube-scheduler's is 2).
	// +optional
	Weight *int32 `json:"weight,omitempty"`
}

// BatchPlacement says which nodes a batch takes first.
// +kubebuilder:validation:Enum=Pack;Spread
type BatchPlacement string

// The placements of a batch.
const (
	// BatchPack takes the fullest node on which the Pod still fits.
	BatchPack BatchPlacement = "Pack"
	// BatchSpread takes the emptiest node.
	BatchSpread BatchPlacement = "Spread"
)

// BatchProfile lets OpportunisticBatching work: it leaves out what makes one Pod's
// placement depend on other Pods', so that equal Pods share one look at the nodes.
type BatchProfile struct {
	// schedulerName that Pods name. Default: fairlead-batch.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SchedulerName string `json:"schedulerName,omitempty"`

	// percentageOfNodesToScore of this profile. Default: 0, kube-scheduler's own choice.
	// Later Pods of the batch take hints from the nodes that were scored.
	// +optional
	PercentageOfNodesToScore *int32 `json:"percentageOfNodesToScore,omitempty"`

	// placement is Pack or Spread. Default: Pack.
	// +optional
	Placement BatchPlacement `json:"placement,omitempty"`
}

// SchedulerPlugins are Fairlead's plugins in the built-in profiles. A profile under
// Profiles is not touched; it enables them by name and with the same arguments. What is set
// here and reaches no profile is refused.
type SchedulerPlugins struct {
	// tunnelReach keeps Pods that the control plane must reach on nodes with a live
	// tunnel agent. With it a small Deployment is rendered that keeps the nodes'
	// condition TunnelReady.
	// +optional
	TunnelReach TunnelReachPlugin `json:"tunnelReach,omitempty"`

	// politePreemption takes the place of DefaultPreemption: it never evicts Pods of
	// other schedulers, unless told so or the Pod has a system priority.
	// +optional
	PolitePreemption PolitePreemptionPlugin `json:"politePreemption,omitempty"`

	// foreignNominations counts the room that other schedulers' preemption has made for
	// Pods that are not bound yet.
	// +optional
	ForeignNominations ForeignNominationsPlugin `json:"foreignNominations,omitempty"`

	// failoverBarrier lets a new leader bind nothing before its caches have caught up
	// with the API server.
	// +optional
	FailoverBarrier FailoverBarrierPlugin `json:"failoverBarrier,omitempty"`
}

// TunnelReachPlugin is TunnelReach with its arguments.
type TunnelReachPlugin struct {
	// enabled in the built-in profiles. Default: false.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	pluginargs.TunnelReachArgs `json:",inline"`
}

// PolitePreemptionPlugin is PolitePreemption with its arguments.
type PolitePreemptionPlugin struct {
	// enabled in the built-in profiles. Default: true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	pluginargs.PolitePreemptionArgs `json:",inline"`
}

// ForeignNominationsPlugin is ForeignNominations with its arguments.
type ForeignNominationsPlugin struct {
	// enabled in the built-in profiles. Default: true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	pluginargs.ForeignNominationsArgs `json:",inline"`
}

// FailoverBarrierPlugin is FailoverBarrier with its arguments.
type FailoverBarrierPlugin struct {
	// enabled in the built-in profiles. Default: true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	pluginargs.FailoverBarrierArgs `json:",inline"`
}
