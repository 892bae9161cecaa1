// SPDX-License-Identifier: Apache-2.0

// Package tunnelcondition keeps the condition TunnelReady of every node: True where a Konnectivity agent is ready. The
// plugin TunnelReach reads it, and any other component may.
//
// It runs as a process of its own and not in the scheduler: the right to write nodes/status lets its holder change the
// capacity of any node, and the scheduler has no other use for it. Writing is idempotent, so two controllers at once,
// as in a rollout, do no harm, and no leader election is needed. The controller updates the heartbeat of each
// condition regularly, so readers can see whether the condition is still maintained. Start at [Controller.Run];
// pods.go knows agents that are Pods.
package tunnelcondition

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// workers write conditions of different nodes at the same time.
const workers = 8

// stuck is how long a node may take: the client gives up a request long before.
const stuck = 2 * time.Minute

// Agents tells where agents are ready.
type Agents interface {
	// Start begins to watch agents and returns when it knows them all. From then on until ctx ends changed gets the name
	// of each node whose agents come, go, or change.
	Start(ctx context.Context, changed func(node string)) error
	// On is the name of a ready agent on a node, "" if there is none.
	On(node string) (string, error)
}

// Controller writes the condition.
type Controller struct {
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
	nodes   corelisters.NodeLister
	synced  cache.InformerSynced
	agents  Agents
	queue   workqueue.TypedRateLimitingInterface[string]
	// now is the clock; tests set it.
	now func() time.Time
	// known says that all nodes and agents are known.
	known atomic.Bool

	mu sync.Mutex
	// busy holds, for each node that a worker is processing, when the worker began.
	busy map[string]time.Time
}

// New makes a controller.
func New(client kubernetes.Interface, agents Agents) (*Controller, error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes := factory.Core().V1().Nodes()
	c := &Controller{
		client: client, factory: factory, nodes: nodes.Lister(), agents: agents, now: time.Now, busy: map[string]time.Time{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	handler, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.enqueueNode, UpdateFunc: func(_, obj any) { c.enqueueNode(obj) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	c.synced = handler.HasSynced
	return c, nil
}

func (c *Controller) enqueueNode(obj any) {
	if node, ok := obj.(*corev1.Node); ok {
		c.queue.Add(node.Name)
	}
}

// Run keeps the conditions until ctx ends. It writes nothing before it knows all agents.
func (c *Controller) Run(ctx context.Context) error {
	defer c.queue.ShutDown()
	if err := c.agents.Start(ctx, c.queue.Add); err != nil {
		return err
	}
	c.factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), c.synced) {
		return ctx.Err()
	}
	c.known.Store(true)
	go func() {
		<-ctx.Done()
		c.queue.ShutDown()
	}()
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	all.Wait()
	return nil
}

func (c *Controller) next(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	defer c.note(name)()
	again, err := c.reconcile(ctx, name)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Condition not written, will try again", "node", name)
		c.queue.AddRateLimited(name)
		return true
	}
	c.queue.Forget(name)
	if again > 0 {
		c.queue.AddAfter(name, again)
	}
	return true
}

// reconcile writes a node's condition if the condition is wrong or its heartbeat is due, and returns the time until
// the next heartbeat.
func (c *Controller) reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	node, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	want, err := c.condition(name)
	if err != nil {
		return 0, err
	}
	for _, have := range node.Status.Conditions {
		if have.Type != want.Type || have.Status != want.Status {
			continue
		}
		if due := pluginargs.TunnelReadyHeartbeat - c.now().Sub(have.LastHeartbeatTime.Time); due > 0 {
			return min(due, pluginargs.TunnelReadyHeartbeat), nil
		}
		want.LastTransitionTime = have.LastTransitionTime
	}
	return pluginargs.TunnelReadyHeartbeat, c.write(ctx, name, want)
}

func (c *Controller) write(ctx context.Context, name string, condition corev1.NodeCondition) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{condition}}})
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		written.WithLabelValues("failed").Inc()
		return err
	}
	written.WithLabelValues("written").Inc()
	return nil
}

// condition is what a node's should be.
func (c *Controller) condition(node string) (corev1.NodeCondition, error) {
	agent, err := c.agents.On(node)
	if err != nil {
		return corev1.NodeCondition{}, err
	}
	now := metav1.NewTime(c.now())
	condition := corev1.NodeCondition{
		Type: pluginargs.TunnelReadyCondition, Status: corev1.ConditionFalse, Reason: ReasonNoAgent,
		Message: "no Konnectivity agent on this node is ready", LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if agent != "" {
		condition.Status, condition.Reason, condition.Message = corev1.ConditionTrue, ReasonReady, "agent "+agent+" is ready"
	}
	return condition, nil
}
