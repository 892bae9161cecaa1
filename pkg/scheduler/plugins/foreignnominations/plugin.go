// Package foreignnominations keeps a scheduler out of the room that another scheduler's preemption has made. See
// README.md.
package foreignnominations

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

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
	informer := h.SharedInformerFactory().Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { p.foreign.update(podOf(obj)) },
		UpdateFunc: func(_, obj any) { p.foreign.update(podOf(obj)) },
		DeleteFunc: func(obj any) { p.foreign.remove(podOf(obj)) },
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

// PreFilter skips Filter where there is nothing to count, which is nearly always.
func (p *Plugin) PreFilter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	p.foreign.notWaiting(pod)
	if p.foreign.empty() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter runs all filters again with the foreign pods on the node, if there are any of the same or a higher priority.
// Like kube-scheduler with its own nominated pods: a pod of lower priority does not keep one of higher priority out.
func (p *Plugin) Filter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	if _, err := state.Read(stateKey); err == nil {
		return nil
	}
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
		if status.IsError() {
			return status
		}
		p.foreign.waits(pod)
		// Preemption on this node would take the room that the other scheduler's preemption has made.
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reason)
	}
	return nil
}

// counted are the foreign pods that count for this pod on a node. Those that the scheduler's own nominator knows, being
// of another profile of the same scheduler, count there.
func (p *Plugin) counted(pod *corev1.Pod, node fwk.NodeInfo) []fwk.PodInfo {
	name := node.Node().Name
	foreign := p.foreign.on(name)
	if len(foreign) == 0 {
		return nil
	}
	own := sets.New[types.UID]()
	for _, nominated := range p.handle.NominatedPodsForNode(name) {
		own.Insert(nominated.GetPod().UID)
	}
	for _, there := range node.GetPods() {
		own.Insert(there.GetPod().UID)
	}
	var list []fwk.PodInfo
	for _, f := range foreign {
		if other := f.GetPod(); corev1helpers.PodPriority(other) >= corev1helpers.PodPriority(pod) && !own.Has(other.UID) && other.UID != pod.UID {
			list = append(list, f)
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
// filters that failed wait for.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}, QueueingHintFn: p.afterPodDeleted},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable | fwk.UpdateNodeTaint}},
	}, nil
}

// afterPodDeleted is about pods that ran: their room counts if they were on a node.
func (p *Plugin) afterPodDeleted(_ klog.Logger, _ *corev1.Pod, oldObj, _ any) (fwk.QueueingHint, error) {
	if deleted, ok := oldObj.(*corev1.Pod); ok && deleted.Spec.NodeName == "" && deleted.Status.NominatedNodeName == "" {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// SignPod implements fwk.SignPlugin: foreign pods count by priority.
func (p *Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return []fwk.SignFragment{{Key: "v1.Pod.Spec.Priority", Value: corev1helpers.PodPriority(pod)}}, nil
}
