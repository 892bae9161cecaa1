// SPDX-License-Identifier: Apache-2.0

// Package foreignnominations keeps a scheduler out of the room that another scheduler's preemption has made. See
// README.md.
package foreignnominations

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
)

const (
	// Name in profiles.
	Name = pluginargs.ForeignNominations

	// stateKey marks a cycle state in which foreign pods have been added already: filters run again below Filter, and
	// this one among them.
	stateKey fwk.StateKey = Name + "/added"

	reason = "node(s) have room that another scheduler has nominated for its pod"
)

// Plugin filters nodes as if the pods that other schedulers have nominated for them ran there already.
type Plugin struct {
	handle  fwk.Handle
	foreign *index
}

var (
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
	_ fwk.SignPlugin        = &Plugin{}
)

// New makes the plugin. Nominations come from the pod informer that the scheduler has anyway.
func New(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	var args pluginargs.ForeignNominationsArgs
	if err := pluginargs.Decode(obj, &args); err != nil {
		return nil, err
	}
	p := &Plugin{handle: h, foreign: newIndex(sets.New(args.Ignore...).Insert(h.ProfileName()))}
	p.foreign.onFreed = func(waiting map[string]*corev1.Pod) { h.Activate(klog.FromContext(ctx), waiting) }
	changed := func(obj any) {
		if pod := podOf(obj); pod != nil {
			p.foreign.update(pod)
		}
	}
	informer := h.SharedInformerFactory().Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, obj any) { changed(obj) },
		DeleteFunc: func(obj any) {
			if pod := podOf(obj); pod != nil {
				p.foreign.remove(pod)
			}
		},
	}); err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	return p, nil
}

func podOf(obj any) *corev1.Pod {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	pod, _ := obj.(*corev1.Pod)
	return pod
}

// Name implements fwk.Plugin.
func (p *Plugin) Name() string { return Name }

// PreFilter skips Filter if there are no nominations to count, which is nearly always the case.
func (p *Plugin) PreFilter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if p.foreign.empty() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	p.foreign.notWaiting(pod)
	p.foreign.arrived(p.handle.SnapshotSharedLister().NodeInfos())
	return nil, nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter runs all filters again with the foreign pods on the node, if there are any that count. Their result is final:
// preemption also runs with the foreign pods in place, so it does not evict pods to use the resources reserved for them.
func (p *Plugin) Filter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	if p.foreign.empty() {
		return nil
	}
	if _, err := state.Read(stateKey); err == nil {
		return nil
	}
	seen := p.foreign.freed.Load()
	pods := p.counted(pod, node)
	if len(pods) == 0 {
		return nil
	}
	state, node = state.Clone(), node.Snapshot()
	state.Write(stateKey, added{})
	for _, foreign := range pods {
		node.AddPodInfo(foreign)
		if status := p.handle.RunPreFilterExtensionAddPod(ctx, state, pod, foreign, node); !status.IsSuccess() {
			return status
		}
	}
	if status := p.handle.RunFilterPlugins(ctx, state, pod, node); !status.IsSuccess() {
		if status.Code() == fwk.Error {
			return status
		}
		p.foreign.waits(pod, seen)
		return fwk.NewStatus(status.Code(), reason)
	}
	return nil
}

// counted are the foreign pods that count for this pod on a node: like kube-scheduler with its own nominated pods, those
// of the same or a higher priority, and those that are bound whatever their priority. Pods that the scheduler's own
// nominator knows, being of another profile of the same scheduler, count there; bound ones count where the snapshot has
// them.
func (p *Plugin) counted(pod *corev1.Pod, node fwk.NodeInfo) []fwk.PodInfo {
	name := node.Node().Name
	foreign := p.foreign.on(name)
	if len(foreign) == 0 {
		return nil
	}
	own := sets.New(pod.UID)
	for _, nominated := range p.handle.NominatedPodsForNode(name) {
		own.Insert(nominated.GetPod().UID)
	}
	snapshot := p.handle.SnapshotSharedLister().NodeInfos()
	var list []fwk.PodInfo
	for _, r := range foreign {
		other := r.pod.GetPod()
		counts := r.bound || corev1helpers.PodPriority(other) >= corev1helpers.PodPriority(pod)
		// The node may be the dry run's of a preemption, without the pods that would be evicted: what was there counts.
		if counts && !own.Has(other.UID) && !has(snapshot, name, other.UID) {
			list = append(list, r.pod)
		}
	}
	return list
}

// added is what stateKey holds.
type added struct{}

// Clone implements fwk.StateData.
func (added) Clone() fwk.StateData { return added{} }

// EventsToRegister implements fwk.EnqueueExtensions. The pods that other schedulers wait for are not the scheduler's
// own, so their changes are no events here: the plugin activates waiting pods by itself. What is registered is what the
// filters that count pods wait for: whichever of them has failed, it is this plugin that has rejected the pod.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	podChange := fwk.Add | fwk.Delete | fwk.UpdatePodLabel | fwk.UpdatePodScaleDown | fwk.UpdatePodToleration
	nodeChange := fwk.Add | fwk.Delete | fwk.UpdateNodeAllocatable | fwk.UpdateNodeLabel | fwk.UpdateNodeTaint
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: podChange}, QueueingHintFn: p.afterPodChange},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: nodeChange}},
		// Volumes: claims of one pod only, and nodes' limits.
		{Event: fwk.ClusterEvent{Resource: fwk.PersistentVolumeClaim, ActionType: fwk.Add | fwk.Update}},
		{Event: fwk.ClusterEvent{Resource: fwk.CSINode, ActionType: fwk.Add | fwk.Update}},
		{Event: fwk.ClusterEvent{Resource: fwk.VolumeAttachment, ActionType: fwk.Delete}},
	}, nil
}

// afterPodChange is about the pod itself and about pods that have room on a node, or had.
func (p *Plugin) afterPodChange(_ klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, after, err := util.As[*corev1.Pod](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	changed := after
	if changed == nil {
		changed = before
	}
	if changed.UID != pod.UID && changed.Spec.NodeName == "" && changed.Status.NominatedNodeName == "" {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// SignPod implements fwk.SignPlugin: foreign pods count by priority.
func (p *Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return []fwk.SignFragment{{Key: "v1.Pod.Spec.Priority", Value: corev1helpers.PodPriority(pod)}}, nil
}
