// SPDX-License-Identifier: Apache-2.0

package tunnelcondition

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// byNode indexes agents by the node they are on.
const byNode = "node"

// pods are agents that run as Pods, as a DaemonSet's do.
type pods struct {
	factory informers.SharedInformerFactory
	agents  cache.SharedIndexInformer
}

// Pods are the agents that selector selects in a namespace.
func Pods(client kubernetes.Interface, namespace string, selector labels.Selector) (Agents, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector.String() }))
	p := &pods{factory: factory, agents: factory.Core().V1().Pods().Informer()}
	if err := p.agents.AddIndexers(cache.Indexers{byNode: nodeOf}); err != nil {
		return nil, fmt.Errorf("index agents by node: %w", err)
	}
	return p, nil
}

func nodeOf(obj any) ([]string, error) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}

// Start implements Agents.
func (p *pods) Start(ctx context.Context, changed func(node string)) error {
	tell := func(obj any) {
		nodes, _ := nodeOf(obj)
		for _, node := range nodes {
			changed(node)
		}
	}
	handler, err := p.agents.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: tell, UpdateFunc: func(old, obj any) { tell(old); tell(obj) }, DeleteFunc: tell,
	})
	if err != nil {
		return fmt.Errorf("watch agents: %w", err)
	}
	p.factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return ctx.Err()
	}
	return nil
}

// On implements Agents.
func (p *pods) On(node string) (string, error) {
	agents, err := p.agents.GetIndexer().ByIndex(byNode, node)
	if err != nil {
		return "", err
	}
	for _, obj := range agents {
		if pod, ok := obj.(*corev1.Pod); ok && ready(pod) {
			return pod.Name, nil
		}
	}
	return "", nil
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
