// SPDX-License-Identifier: Apache-2.0

// Package politepreemption is preemption that evicts only its own scheduler's pods. It is the in-tree
// DefaultPreemption with one more question about every victim; see README.md.
package politepreemption

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
)

// Name in profiles.
const Name = pluginargs.PolitePreemption

// ErrWorkloadAware is returned when preemption of whole pod groups is on: it selects victims itself and would not call
// this plugin.
var ErrWorkloadAware = errors.New("PolitePreemption does not reach preemption of pod groups: " +
	"remove WorkloadAwarePreemption from the feature gates, or use DefaultPreemption")

// Plugin embeds DefaultPreemption and gives it a rule of its own.
type Plugin struct {
	*defaultpreemption.DefaultPreemption
	any     bool
	evicted sets.Set[string]
}

var (
	_ fwk.PostFilterPlugin  = &Plugin{}
	_ fwk.PreEnqueuePlugin  = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
)

// New makes the plugin for the profile of h.
func New(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	var args pluginargs.PolitePreemptionArgs
	if err := pluginargs.Decode(obj, &args); err != nil {
		return nil, err
	}
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	if features.EnableWorkloadAwarePreemption {
		return nil, ErrWorkloadAware
	}
	inTree, err := defaultpreemption.New(ctx, &schedulerconfig.DefaultPreemptionArgs{
		MinCandidateNodesPercentage: *args.MinCandidateNodesPercentage,
		MinCandidateNodesAbsolute:   *args.MinCandidateNodesAbsolute,
	}, h, features)
	if err != nil {
		return nil, err
	}
	p := &Plugin{DefaultPreemption: inTree, evicted: sets.New(args.Evict...).Insert(h.ProfileName())}
	p.any = p.evicted.Has(pluginargs.AnyScheduler)
	inTree.IsEligiblePod = p.eligible
	return p, nil
}

// Name implements fwk.Plugin.
func (p *Plugin) Name() string { return Name }

// eligible says whether a victim of lower priority may be evicted for the preemptor. A pod with a system priority may
// evict every scheduler's pods: upstream requires that of every such rule, and a cluster without room for its system
// pods is of no use to the other scheduler either.
func (p *Plugin) eligible(_ fwk.NodeInfo, victim fwk.PodInfo, preemptor *corev1.Pod) bool {
	if p.any || corev1helpers.PodPriority(preemptor) >= scheduling.SystemCriticalPriority {
		return true
	}
	return p.evicted.Has(schedulerOf(victim.GetPod()))
}

// schedulerOf returns the name of the scheduler that placed a pod. No scheduler placed the mirror pod of a static pod.
// The API server gives it the default scheduler's name, so it is not evicted unless the default scheduler's pods may
// be.
func schedulerOf(pod *corev1.Pod) string {
	if pod.Spec.SchedulerName == "" {
		return corev1.DefaultSchedulerName
	}
	return pod.Spec.SchedulerName
}
