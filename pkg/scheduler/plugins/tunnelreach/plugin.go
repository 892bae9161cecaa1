// Package tunnelreach places pods that the control plane must reach where a tunnel agent lives. See README.md.
//
// Start at [New] and PreFilter; services.go finds the pods that nobody has labelled.
package tunnelreach

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
)

const (
	// Name in profiles.
	Name = pluginargs.TunnelReach

	// EventNoAgent is the reason of the event that says that the plugin fails open.
	EventNoAgent = "NoTunnelAgent"

	stateKey     fwk.StateKey = Name
	signFragment              = "fairlead.dev/TunnelReach.mustReach()"
)

// Plugin filters or scores nodes by whether a tunnel agent is ready in their topology domain.
type Plugin struct {
	handle fwk.Handle
	args   pluginargs.TunnelReachArgs
	// services is nil when only labels count.
	services *services
}

var (
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.PreScorePlugin    = &Plugin{}
	_ fwk.ScorePlugin       = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
	_ fwk.SignPlugin        = &Plugin{}
)

// New makes the plugin. Unless args.automatic is false it watches webhook configurations, APIServices and CRDs, which
// takes rights beyond system:kube-scheduler: the bundle renders them.
func New(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	var args pluginargs.TunnelReachArgs
	if err := pluginargs.Decode(obj, &args); err != nil {
		return nil, err
	}
	p := &Plugin{handle: h, args: args}
	if !*args.Automatic {
		return p, nil
	}
	client, err := dynamic.NewForConfig(h.KubeConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client for APIServices and CRDs: %w", err)
	}
	if p.services, err = watchServices(ctx, h.SharedInformerFactory(), client); err != nil {
		return nil, err
	}
	return p, nil
}

// Name implements fwk.Plugin.
func (p *Plugin) Name() string { return Name }

// reach is what one cycle knows: the topology domains with a live agent. It is never changed after PreFilter.
type reach struct{ domains sets.Set[string] }

// Clone implements fwk.StateData.
func (r *reach) Clone() fwk.StateData { return r }

// PreFilter finds out where agents live, for pods that must be reached. Where none lives at all the pod may run
// anywhere: a tunnel that is down must not keep the webhook from starting that may be needed to bring it up.
func (p *Plugin) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !p.mustReach(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	domains := sets.New[string]()
	for _, node := range nodes {
		if n := node.Node(); tunnelReady(n) {
			if domain, ok := n.Labels[p.args.TopologyKey]; ok {
				domains.Insert(domain)
			}
		}
	}
	if len(domains) == 0 {
		p.handle.EventRecorder().Eventf(pod, nil, corev1.EventTypeWarning, EventNoAgent, "Scheduling",
			"no node with label %s has a live tunnel agent (condition %s), so the pod may run anywhere, reached or not",
			p.args.TopologyKey, pluginargs.TunnelReadyCondition)
		return nil, fwk.NewStatus(fwk.Skip)
	}
	state.Write(stateKey, &reach{domains})
	if p.args.Mode != pluginargs.ReachRequire {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter refuses nodes without an agent; evicting pods would not change that.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	if r, ok := read(state); ok && !p.reached(r, node.Node()) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
			fmt.Sprintf("node(s) had no live tunnel agent in their %s, and the control plane must reach the pod", p.args.TopologyKey))
	}
	return nil
}

// PreScore skips the score of pods that need not be reached.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if _, ok := read(state); !ok {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score gives all points to nodes that are reached.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	if r, ok := read(state); ok && p.reached(r, node.Node()) {
		return fwk.MaxScore, nil
	}
	return fwk.MinScore, nil
}

// ScoreExtensions implements fwk.ScorePlugin.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }

func (p *Plugin) reached(r *reach, node *corev1.Node) bool {
	domain, ok := node.Labels[p.args.TopologyKey]
	return ok && r.domains.Has(domain)
}

func read(state fwk.CycleState) (*reach, bool) {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil, false
	}
	r, ok := data.(*reach)
	return r, ok
}

func tunnelReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == pluginargs.TunnelReadyCondition {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// mustReach says whether the control plane must reach a pod: its label says so, or that it need not, or a Service that
// the API server calls selects it.
func (p *Plugin) mustReach(pod *corev1.Pod) bool {
	switch pod.Labels[pluginargs.ReachLabel] {
	case "true":
		return true
	case "false":
		return false
	}
	return p.services != nil && p.services.selects(pod)
}

// EventsToRegister implements fwk.EnqueueExtensions.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.Delete | fwk.UpdateNodeCondition | fwk.UpdateNodeLabel}, QueueingHintFn: p.afterNodeChange},
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.UpdatePodLabel}, QueueingHintFn: p.afterLabelChange},
	}, nil
}

// afterNodeChange tries a pod again when a node comes, becomes reached, or goes with what may have been the last agent.
func (p *Plugin) afterNodeChange(_ klog.Logger, _ *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, after, err := util.As[*corev1.Node](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if before == nil || after == nil || tunnelReady(before) != tunnelReady(after) ||
		before.Labels[p.args.TopologyKey] != after.Labels[p.args.TopologyKey] {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// afterLabelChange tries a pod again when its own labels say that it need not be reached any more.
func (p *Plugin) afterLabelChange(_ klog.Logger, pod *corev1.Pod, _, newObj any) (fwk.QueueingHint, error) {
	if changed, ok := newObj.(*corev1.Pod); ok && changed.UID == pod.UID && !p.mustReach(changed) {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// SignPod implements fwk.SignPlugin.
func (p *Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return []fwk.SignFragment{{Key: signFragment, Value: p.mustReach(pod)}}, nil
}
