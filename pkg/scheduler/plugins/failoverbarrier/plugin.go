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
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
)

const (
	// Name in profiles.
	Name = pluginargs.FailoverBarrier

	reason = "waiting until the new leader's caches have caught up with the API server"

	// fresh is how long a list of what must be known stays good: pods that are deleted meanwhile never appear.
	fresh = time.Second
	// again is the pause between looks at the informer, and between attempts of pods that were put back.
	again = 20 * time.Millisecond
	// later is the pause after an answer that was an error.
	later = 500 * time.Millisecond
)

// Plugin rejects pods until every pod that the API server knew to be bound at the first attempt is in the scheduler's
// snapshot.
//
// A scheduler's plugins are made long before it leads, but its cycles only run when it does: the first PreFilter is the
// first moment of leading. A scheduler that loses the Lease exits, so that there is one such moment in a process.
type Plugin struct {
	handle  fwk.Handle
	timeout time.Duration
	bound   lister
	// known is the scheduler's own pod informer.
	known cache.Store
	// nodes are those of the scheduler's own node informer.
	nodes corelisters.NodeLister

	open atomic.Bool

	// Cycles run one at a time; the fields below are theirs.
	missing map[types.UID]string
	listed  time.Time
	started time.Time
	total   int

	mu      sync.Mutex
	waiting map[string]*corev1.Pod
}

var (
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
	_ fwk.SignPlugin        = &Plugin{}
)

// New makes the plugin with a client of its own for pods' metadata.
func New(_ context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	var args pluginargs.FailoverBarrierArgs
	if err := pluginargs.Decode(obj, &args); err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(h.KubeConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client for pods' metadata: %w", err)
	}
	return newPlugin(h, args.Timeout.Duration, metadataLister{client}), nil
}

func newPlugin(h fwk.Handle, timeout time.Duration, bound lister) *Plugin {
	return &Plugin{
		handle: h, timeout: timeout, bound: bound, waiting: map[string]*corev1.Pod{},
		known: h.SharedInformerFactory().Core().V1().Pods().Informer().GetStore(),
		nodes: h.SharedInformerFactory().Core().V1().Nodes().Lister(),
	}
}

// Name implements fwk.Plugin.
func (p *Plugin) Name() string { return Name }

// PreFilter rejects the pod as long as the snapshot of this cycle lacks pods that are bound.
func (p *Plugin) PreFilter(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if p.open.Load() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if err := p.list(ctx); err != nil {
		p.putBack(ctx, pod, later)
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reason, err.Error())
	}
	for _, node := range nodes {
		for _, there := range node.GetPods() {
			delete(p.missing, there.GetPod().UID)
		}
	}
	p.dropOrphans()
	if len(p.missing) == 0 {
		p.release(ctx)
		return nil, fwk.NewStatus(fwk.Skip)
	}
	missing := len(p.missing)
	// The snapshot of this cycle is what it is; waiting here spares the next cycle a useless attempt.
	p.waitForInformer(ctx)
	p.putBack(ctx, pod, again)
	return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("%s: %d of %d bound pods are not known yet", reason, missing, p.total))
}

// list asks the API server, past all caches, which pods are bound.
func (p *Plugin) list(ctx context.Context) error {
	if p.started.IsZero() {
		p.started = time.Now()
	}
	if p.missing != nil && time.Since(p.listed) < fresh {
		return nil
	}
	bound, err := p.bound.list(ctx)
	if err != nil {
		return fmt.Errorf("list bound pods: %w", err)
	}
	p.missing, p.total, p.listed = bound, len(bound), time.Now()
	return nil
}

// waitForInformer returns when the informer has all pods that are missing, or ctx ends.
func (p *Plugin) waitForInformer(ctx context.Context) {
	for !p.informerHasAll() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
		if time.Since(p.listed) > fresh {
			return
		}
	}
}

func (p *Plugin) informerHasAll() bool {
	for uid, key := range p.missing {
		if p.boundPod(uid, key) == nil {
			return false
		}
	}
	return true
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

// dropOrphans forgets missing pods whose node does not exist: no snapshot will ever have them, and they take room from
// nobody. It does so a while after the list: should the node be one that the informer lacks as yet, the scheduler's cache
// has the pods by then, and a snapshot that has the node has them, too.
func (p *Plugin) dropOrphans() {
	if time.Since(p.listed) < again {
		return
	}
	for uid, key := range p.missing {
		if pod := p.boundPod(uid, key); pod != nil {
			if _, err := p.nodes.Get(pod.Spec.NodeName); apierrors.IsNotFound(err) {
				delete(p.missing, uid)
			}
		}
	}
}

// putBack sees to it that the pod is tried again soon, not after the queue's backoff.
func (p *Plugin) putBack(ctx context.Context, pod *corev1.Pod, after time.Duration) {
	p.mu.Lock()
	first := len(p.waiting) == 0
	p.waiting[klog.KObj(pod).String()] = pod
	p.mu.Unlock()
	if first {
		go p.activate(klog.FromContext(ctx), after)
	}
}

// release opens the barrier for good.
func (p *Plugin) release(ctx context.Context) {
	p.open.Store(true)
	p.missing = nil
	logger := klog.FromContext(ctx)
	logger.Info("The caches have caught up with the API server", "plugin", Name, "boundPods", p.total, "after", time.Since(p.started).Round(time.Millisecond))
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

// EventsToRegister implements fwk.EnqueueExtensions: rejected pods are activated by the plugin itself; a bound pod that
// becomes known is what they wait for, should that be missed.
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
