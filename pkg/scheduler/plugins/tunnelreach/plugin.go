// SPDX-License-Identifier: Apache-2.0

// Package tunnelreach places pods that the control plane must reach on nodes with a tunnel agent, or in their topology
// domain. See README.md.
//
// Start at [New] and PreFilter; services.go finds the pods that must be reached although they have no label.
package tunnelreach

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/nomination"
)

const (
	// Name in profiles.
	Name = pluginargs.TunnelReach

	// EventNoAgent is the reason of the event that says that the plugin let a pod go anywhere.
	EventNoAgent = "NoTunnelAgent"
	// EventNotReached is the reason of the event that says that other scores outweighed this one.
	EventNotReached = "NotReached"

	stateKey     fwk.StateKey = Name
	signFragment              = "fairlead.dev/TunnelReach.mustReach()"

	notKnown = "waiting to learn which Services the API server calls, from webhook configurations, APIServices and CRDs"
	// patience bounds that wait: a watch that does not come about must not stop all scheduling.
	patience = 30 * time.Second
)

// Plugin filters or scores nodes by whether a tunnel agent is ready in their topology domain.
type Plugin struct {
	handle fwk.Handle
	args   pluginargs.TunnelReachArgs
	nodes  corelisters.NodeLister
	// services is nil when only labels count.
	services *services
	waiting  waiting
	alarm    alarm
	// now is the clock; tests set it.
	now func() time.Time

	// patient runs when the first pod is held back; hasty ends all holding back, after patience.
	patient sync.Once
	hasty   atomic.Bool
}

var (
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.PreScorePlugin    = &Plugin{}
	_ fwk.ScorePlugin       = &Plugin{}
	_ fwk.PostBindPlugin    = &Plugin{}
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
	if !*args.Automatic {
		return newPlugin(ctx, args, h, nil)
	}
	known, err := sharedServices(ctx, h.SharedInformerFactory(), h.KubeConfig())
	if err != nil {
		return nil, err
	}
	return newPlugin(ctx, args, h, known)
}

func newPlugin(ctx context.Context, args pluginargs.TunnelReachArgs, h fwk.Handle, known *services) (*Plugin, error) {
	p := &Plugin{handle: h, args: args, services: known, now: time.Now, nodes: h.SharedInformerFactory().Core().V1().Nodes().Lister()}
	p.waiting.activate = func(pods map[string]*corev1.Pod) { h.Activate(klog.FromContext(ctx), pods) }
	if known != nil {
		known.subscribe(p.waiting.changed)
	}
	if args.Mode == pluginargs.ReachRequire {
		if err := p.followHeartbeats(h.SharedInformerFactory().Core().V1().Nodes().Informer()); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Name implements fwk.Plugin.
func (p *Plugin) Name() string { return Name }

// reach is the data of one cycle: the topology domains with a live agent. After PreFilter only noted changes.
type reach struct {
	domains sets.Set[string]
	// stale counts the nodes whose condition TunnelReady has an outdated heartbeat.
	stale int
	// until is when the last agent stops counting, unless a heartbeat is updated before; zero is never.
	until time.Time
	// version is the version of the set of Services that the cycle used; noted is whether the pod waits for a newer one.
	version int64
	noted   atomic.Bool
}

// Clone implements fwk.StateData.
func (r *reach) Clone() fwk.StateData { return r }

// PreFilter finds the topology domains with live agents, for pods that must be reached. If there is no live agent at
// all, the pod may run anywhere: the tunnel may need a webhook to start, so a tunnel that is down must not keep the
// webhook from starting.
func (p *Plugin) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	version := p.waiting.version.Load()
	if !p.mustReach(pod) {
		if p.hold(pod) {
			p.waiting.add(pod, version)
			nomination.Keep(state)
			return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, notKnown)
		}
		return nil, fwk.NewStatus(fwk.Skip)
	}
	r := p.survey(each(nodes))
	r.version = version
	state.Write(stateKey, r)
	if len(r.domains) == 0 || p.args.Mode != pluginargs.ReachRequire {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// hold says whether the pod must wait until the plugin knows all objects that name Services, because the pod is behind a
// Service that may be one of them.
func (p *Plugin) hold(pod *corev1.Pod) bool {
	if p.services == nil || p.services.known.Load() || p.hasty.Load() || pod.Labels[pluginargs.ReachLabel] != "" || !p.services.mayTurnOut(pod) {
		return false
	}
	p.patient.Do(func() { time.AfterFunc(patience, p.losePatience) })
	return true
}

// losePatience ends the wait and continues with the Services known so far.
func (p *Plugin) losePatience() {
	p.hasty.Store(true)
	p.waiting.changed()
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter refuses nodes without an agent; evicting pods would not change that.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	r, ok := read(state)
	if !ok || p.reached(r, node.Node()) {
		return nil
	}
	if !r.noted.Swap(true) {
		p.waiting.add(pod, r.version)
		p.wakeAt(r.until)
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
		fmt.Sprintf("node(s) had no live tunnel agent in their %s, and the control plane must reach the pod", p.args.TopologyKey))
}

// PreScore skips the score of pods that need not be reached, or cannot be.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if r, ok := read(state); !ok || len(r.domains) == 0 {
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

// PostBind says so when a pod that must be reached has got a node that is not, once for each pod.
func (p *Plugin) PostBind(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) {
	r, ok := read(state)
	if !ok {
		return
	}
	if len(r.domains) > 0 {
		if node, err := p.nodes.Get(nodeName); err == nil && !p.reached(r, node) {
			p.warn(pod, EventNotReached, "node %s has no live tunnel agent in its %s: other scores and filters outweighed that the control plane must reach the pod",
				nodeName, p.args.TopologyKey)
		}
		return
	}
	old := ""
	if r.stale > 0 {
		old = fmt.Sprintf("; %d nodes' conditions are older than %s: see whether the controller tunnel-condition runs", r.stale, pluginargs.TunnelReadyStale)
	}
	p.warn(pod, EventNoAgent, "no node with label %s has a live tunnel agent (condition %s), so the pod was placed anywhere, reached or not%s",
		p.args.TopologyKey, pluginargs.TunnelReadyCondition, old)
}

func (p *Plugin) warn(pod *corev1.Pod, event, text string, args ...any) {
	p.handle.EventRecorder().Eventf(pod, nil, corev1.EventTypeWarning, event, "Scheduling", text, args...)
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

// EventsToRegister implements fwk.EnqueueExtensions. There are no events for objects that name Services, for Services,
// and for heartbeats, so the plugin activates waiting pods itself.
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
	if before == nil || after == nil || saysReady(before) != saysReady(after) ||
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
