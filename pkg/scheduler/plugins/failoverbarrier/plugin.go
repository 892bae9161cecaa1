// SPDX-License-Identifier: Apache-2.0

// Package failoverbarrier holds back a new leader until it knows what the old one has done. See README.md.
package failoverbarrier

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/nomination"
)

const (
	// Name in profiles.
	Name = pluginargs.FailoverBarrier

	reason = "waiting until the new leader's caches have caught up with the API server"

	suspended = "the process was suspended after it had chosen the node; another scheduler may have led meanwhile"

	// stateKey holds the number of suspensions before the cycle, see stamp.
	stateKey fwk.StateKey = Name

	// again is the pause between looks at the informer, and between attempts of pods that were put back.
	again = 20 * time.Millisecond

	// shut means that the barrier is closed; it is never a number of suspensions.
	shut = -1
)

// Plugin rejects pods until every pod that the API server knew to be bound at the first attempt is in the scheduler's
// snapshot.
//
// A scheduler creates its plugins long before it leads, but runs scheduling cycles only while it leads: the first
// PreFilter marks the start of leading. A scheduler that loses the Lease exits, so a process starts to lead once, and
// once more after each suspension: another replica may have led meanwhile, and kube-scheduler takes a while to notice.
type Plugin struct {
	ctx     context.Context //nolint:containedctx // the life of the process: what is listed outlives the cycle
	handle  fwk.Handle
	timeout time.Duration
	bound   lister
	// known is the scheduler's own pod informer.
	known cache.Store
	// nodes are those of the scheduler's own node informer.
	nodes  corelisters.NodeLister
	pulse  *pulse
	tenure *tenure
	// othersPrepare is prepareOthers, asked once.
	othersPrepare func() bool

	// opened is how many suspensions there were when the barrier was opened.
	opened atomic.Int64

	// Cycles run one at a time; the fields below are theirs. closed is how many suspensions there were when the barrier
	// was closed.
	catchUp *catchUp
	closed  int64

	mu      sync.Mutex
	waiting map[string]*corev1.Pod
}

var (
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.PreBindPlugin     = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
	_ fwk.SignPlugin        = &Plugin{}
)

// New makes the plugin with a client of its own for pods' metadata.
func New(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	registerMetrics()
	var args pluginargs.FailoverBarrierArgs
	if err := pluginargs.Decode(obj, &args); err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(h.KubeConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client for pods' metadata: %w", err)
	}
	lease := used.Load()
	beats := newPulse(lease, clock())
	p := newPlugin(ctx, h, args.Timeout.Duration, metadataLister{client}, newTenure(lease, readerOf(lease, h.ClientSet()), beats))
	if lease != nil {
		go beats.run(ctx)
	}
	return p, nil
}

func newPlugin(ctx context.Context, h fwk.Handle, timeout time.Duration, bound lister, leads *tenure) *Plugin {
	p := &Plugin{
		ctx: ctx, handle: h, timeout: timeout, bound: bound, waiting: map[string]*corev1.Pod{},
		known: h.SharedInformerFactory().Core().V1().Pods().Informer().GetStore(),
		nodes: h.SharedInformerFactory().Core().V1().Nodes().Lister(),
		pulse: leads.pulse, tenure: leads,
	}
	p.opened.Store(shut)
	p.othersPrepare = sync.OnceValue(p.prepareOthers)
	return p
}

// Name implements fwk.Plugin.
func (p *Plugin) Name() string { return Name }

// stamp is the number of suspensions before a cycle.
type stamp int64

// Clone implements fwk.StateData.
func (s stamp) Clone() fwk.StateData { return s }

// PreFilter rejects the pod as long as the snapshot of this cycle lacks pods that are bound.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	gaps := p.pulse.look()
	if p.opened.Load() == gaps {
		state.Write(stateKey, stamp(gaps))
		return nil, fwk.NewStatus(fwk.Skip)
	}
	c := p.close(gaps)
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if !c.complete(ctx) {
		return nil, p.reject(ctx, state, pod, c.why())
	}
	there := sets.New[types.UID]()
	for _, node := range nodes {
		for _, pod := range node.GetPods() {
			there.Insert(pod.GetPod().UID)
		}
	}
	settled := c.age() > again
	missing := c.found(func(uid types.UID, key string) bool { return there.Has(uid) || settled && p.orphan(uid, key) })
	if missing == 0 {
		p.open(ctx, gaps)
		state.Write(stateKey, stamp(gaps))
		return nil, fwk.NewStatus(fwk.Skip)
	}
	why := c.why()
	// The snapshot of this cycle does not change any more. Waiting here saves the next cycle a useless attempt.
	p.waitForInformer(ctx, c)
	return nil, p.reject(ctx, state, pod, why)
}

// close begins to catch up, unless that is under way since the last suspension.
func (p *Plugin) close(gaps int64) *catchUp {
	if p.catchUp != nil && p.closed == gaps {
		return p.catchUp
	}
	if p.catchUp != nil {
		p.catchUp.cancel()
	}
	p.closed = gaps
	p.catchUp = startCatchUp(p.ctx, p.bound, p.tenure.proof(gaps))
	barrierOpen.WithLabelValues(p.handle.ProfileName()).Set(0)
	return p.catchUp
}

// open lets pods through until the next suspension.
func (p *Plugin) open(ctx context.Context, gaps int64) {
	p.opened.Store(gaps)
	p.catchUp.cancel()
	barrierOpen.WithLabelValues(p.handle.ProfileName()).Set(1)
	klog.FromContext(ctx).Info("The caches have caught up with the API server", "plugin", Name, "boundPods", p.catchUp.total,
		"after", time.Since(p.catchUp.began).Round(time.Millisecond), "suspensions", gaps)
	p.catchUp = nil
}

func (p *Plugin) reject(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, why string) *fwk.Status {
	nomination.Keep(state)
	p.putBack(ctx, pod)
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reason+": "+why)
}

// waitForInformer returns when the informer has all pods that are missing, or ctx ends.
func (p *Plugin) waitForInformer(ctx context.Context, c *catchUp) {
	has := func(uid types.UID, key string) bool { return p.boundPod(uid, key) != nil }
	for begin := time.Now(); !c.all(has) && time.Since(begin) < fresh; {
		if !pause(ctx, again) {
			return
		}
	}
}

// boundPod is what the informer has of a bound pod; nil if it has not got that far.
func (p *Plugin) boundPod(uid types.UID, key string) *corev1.Pod {
	obj, ok, err := p.known.GetByKey(key)
	if err != nil || !ok {
		return nil
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.UID != uid || pod.Spec.NodeName == "" {
		return nil
	}
	return pod
}

// orphan says whether a missing pod is on a node that does not exist: no snapshot will ever have it, and it uses no
// node's resources. The plugin calls orphan some time after the list. If the informer does not have the node yet, the
// scheduler's cache has the pod by then, so a snapshot with the node also has the pod.
func (p *Plugin) orphan(uid types.UID, key string) bool {
	pod := p.boundPod(uid, key)
	if pod == nil {
		return false
	}
	_, err := p.nodes.Get(pod.Spec.NodeName)
	return apierrors.IsNotFound(err)
}

// putBack makes the scheduler retry the pod soon, not after the queue's backoff.
func (p *Plugin) putBack(ctx context.Context, pod *corev1.Pod) {
	p.mu.Lock()
	first := len(p.waiting) == 0
	p.waiting[klog.KObj(pod).String()] = pod
	p.mu.Unlock()
	if first {
		go p.activate(klog.FromContext(ctx), again)
	}
}

func (p *Plugin) activate(logger klog.Logger, after time.Duration) {
	time.Sleep(after)
	p.mu.Lock()
	pods := p.waiting
	p.waiting = map[string]*corev1.Pod{}
	p.mu.Unlock()
	p.handle.Activate(logger, pods)
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// EventsToRegister implements fwk.EnqueueExtensions: the plugin activates rejected pods itself. The registered event, a
// bound pod that becomes known, covers the case that it misses one.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Add}, QueueingHintFn: p.afterPodAdded},
	}, nil
}

func (p *Plugin) afterPodAdded(_ klog.Logger, _ *corev1.Pod, _, newObj any) (fwk.QueueingHint, error) {
	if pod, ok := newObj.(*corev1.Pod); ok && pod.Spec.NodeName == "" {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// SignPod implements fwk.SignPlugin: all pods are alike to the barrier.
func (p *Plugin) SignPod(context.Context, *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return nil, nil
}
