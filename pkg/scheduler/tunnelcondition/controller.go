// Package tunnelcondition keeps the condition TunnelReady of every node: True where a Konnectivity agent is ready. The
// plugin TunnelReach reads it, and so may anybody else.
//
// It runs as a process of its own and not in the scheduler: writing nodes' status is a right that lets its holder change
// what any node can take, and the scheduler has no other use for it. Writing is idempotent, so two of them at once, as in a
// rollout, do no harm and no leader is elected. Start at [Controller.Run].
package tunnelcondition

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
)

// Reasons of the condition.
const (
	ReasonReady   = "AgentReady"
	ReasonNoAgent = "NoReadyAgent"
)

// byNode indexes agents by the node they are on.
const byNode = "node"

// Controller writes the condition.
type Controller struct {
	client kubernetes.Interface
	nodes  corelisters.NodeLister
	agents cache.Indexer
	queue  workqueue.TypedRateLimitingInterface[string]
	starts []func(stop <-chan struct{})
	synced []cache.InformerSynced
	// now is the clock; tests set it.
	now func() time.Time
}

// New makes a controller for the agents that selector selects in a namespace.
func New(client kubernetes.Interface, namespace string, selector labels.Selector) (*Controller, error) {
	all := informers.NewSharedInformerFactory(client, 0)
	agents := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector.String() }))
	pods, nodes := agents.Core().V1().Pods().Informer(), all.Core().V1().Nodes()
	c := &Controller{
		client: client, nodes: nodes.Lister(), agents: pods.GetIndexer(), now: time.Now,
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		starts: []func(<-chan struct{}){all.Start, agents.Start},
	}
	if err := pods.AddIndexers(cache.Indexers{byNode: nodeOf}); err != nil {
		return nil, fmt.Errorf("index agents by node: %w", err)
	}
	for _, w := range []struct {
		informer cache.SharedIndexInformer
		enqueue  func(obj any)
	}{{nodes.Informer(), c.enqueueNode}, {pods, c.enqueueAgent}} {
		handler, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: w.enqueue, UpdateFunc: func(old, obj any) { w.enqueue(old); w.enqueue(obj) }, DeleteFunc: w.enqueue,
		})
		if err != nil {
			return nil, fmt.Errorf("watch nodes and agents: %w", err)
		}
		c.synced = append(c.synced, handler.HasSynced)
	}
	return c, nil
}

func nodeOf(obj any) ([]string, error) {
	if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}

func (c *Controller) enqueueNode(obj any) {
	if node, ok := unwrap(obj).(*corev1.Node); ok {
		c.queue.Add(node.Name)
	}
}

func (c *Controller) enqueueAgent(obj any) {
	if pod, ok := unwrap(obj).(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		c.queue.Add(pod.Spec.NodeName)
	}
}

func unwrap(obj any) any {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return obj
}

// Run keeps the conditions until ctx ends. It writes nothing before it knows all agents.
func (c *Controller) Run(ctx context.Context) error {
	defer c.queue.ShutDown()
	for _, start := range c.starts {
		start(ctx.Done())
	}
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return ctx.Err()
	}
	go func() {
		<-ctx.Done()
		c.queue.ShutDown()
	}()
	for c.next(ctx) {
	}
	return nil
}

func (c *Controller) next(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	if err := c.reconcile(ctx, name); err != nil {
		klog.FromContext(ctx).Error(err, "Condition not written, will try again", "node", name)
		c.queue.AddRateLimited(name)
		return true
	}
	c.queue.Forget(name)
	return true
}

// reconcile writes a node's condition if it is not what it should be.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	node, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	want, err := c.condition(name)
	if err != nil {
		return err
	}
	for _, have := range node.Status.Conditions {
		if have.Type == want.Type && have.Status == want.Status {
			return nil
		}
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{want}}})
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// condition is what a node's should be.
func (c *Controller) condition(node string) (corev1.NodeCondition, error) {
	agents, err := c.agents.ByIndex(byNode, node)
	if err != nil {
		return corev1.NodeCondition{}, err
	}
	now := metav1.NewTime(c.now())
	condition := corev1.NodeCondition{
		Type: pluginargs.TunnelReadyCondition, Status: corev1.ConditionFalse, Reason: ReasonNoAgent,
		Message: "no Konnectivity agent on this node is ready", LastHeartbeatTime: now, LastTransitionTime: now,
	}
	for _, obj := range agents {
		if pod, ok := obj.(*corev1.Pod); ok && ready(pod) {
			condition.Status, condition.Reason = corev1.ConditionTrue, ReasonReady
			condition.Message = "agent " + pod.Name + " is ready"
			break
		}
	}
	return condition, nil
}

func ready(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
