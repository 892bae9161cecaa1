// SPDX-License-Identifier: Apache-2.0

package pluginargs

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// ReachMode says how much a live tunnel agent counts.
// +kubebuilder:validation:Enum=Prefer;Require
type ReachMode string

// The modes of TunnelReach.
const (
	// ReachPrefer scores nodes with a live agent higher.
	ReachPrefer ReachMode = "Prefer"
	// ReachRequire admits no other nodes, as long as any agent lives.
	ReachRequire ReachMode = "Require"
)

const (
	// ReachLabel on a pod, with value "true", says that the control plane must reach it; with "false", that it need
	// not, whatever Services select it.
	ReachLabel = "fairlead.dev/tunnel-reach"
	// TunnelReadyCondition is the type of the node condition that is True where a tunnel agent is ready.
	TunnelReadyCondition corev1.NodeConditionType = "TunnelReady"

	// TunnelReadyHeartbeat is how often the condition's heartbeat is updated, as a kubelet does with its own
	// conditions.
	TunnelReadyHeartbeat = 5 * time.Minute
	// TunnelReadyStale is the age at which a heartbeat is too old to show that the condition still holds.
	TunnelReadyStale = 3 * TunnelReadyHeartbeat
)

// TunnelReachArgs are the arguments of TunnelReach.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type TunnelReachArgs struct {
	// mode is Prefer or Require. Default: Prefer.
	// +optional
	Mode ReachMode `json:"mode,omitempty"`

	// topologyKey is the node label that says which nodes one agent stands for. Default: kubernetes.io/hostname, an
	// agent on the node itself, as with agents in a DaemonSet. With agents in a Deployment, name a wider one, such as
	// topology.kubernetes.io/zone.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	TopologyKey string `json:"topologyKey,omitempty"`

	// automatic treats pods behind Services that webhook configurations, APIServices or CRD conversions name as if
	// they had the label fairlead.dev/tunnel-reach: "true". Default: true.
	// +optional
	Automatic *bool `json:"automatic,omitempty"`
}

// Default implements Args.
func (a *TunnelReachArgs) Default() {
	if a.Mode == "" {
		a.Mode = ReachPrefer
	}
	if a.TopologyKey == "" {
		a.TopologyKey = corev1.LabelHostname
	}
	if a.Automatic == nil {
		a.Automatic = ptr.To(true)
	}
}

// Validate implements Args.
func (a *TunnelReachArgs) Validate(p *field.Path) field.ErrorList {
	var errs field.ErrorList
	if a.Mode != ReachPrefer && a.Mode != ReachRequire {
		errs = append(errs, field.NotSupported(p.Child("mode"), a.Mode, []ReachMode{ReachPrefer, ReachRequire}))
	}
	return append(errs, metav1validation.ValidateLabelName(a.TopologyKey, p.Child("topologyKey"))...)
}
