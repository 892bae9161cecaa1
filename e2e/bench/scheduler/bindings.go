// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// bindings are when and where pods were bound, as a watch sees it.
type bindings struct {
	mu    sync.Mutex
	at    map[string]time.Time
	nodes map[string]string
	apps  map[string]string
	cond  chan struct{}
}

func watchBindings(ctx context.Context, client kubernetes.Interface) (*bindings, error) {
	b := &bindings{at: map[string]time.Time{}, nodes: map[string]string{}, apps: map[string]string{}, cond: make(chan struct{}, 1)}
	// Use an informer, because the API server closes the watch of a client that is slow for a moment.
	informer := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "spec.nodeName!=" })).Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok {
			b.add(pod)
		}
	}}); err != nil {
		return nil, err
	}
	go informer.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, ctx.Err()
	}
	return b, nil
}

func (b *bindings) add(pod *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, seen := b.at[pod.Name]; !seen {
		b.at[pod.Name], b.nodes[pod.Name] = time.Now(), pod.Spec.NodeName
		b.apps[pod.Name] = pod.Labels[appLabel]
		select {
		case b.cond <- struct{}{}:
		default:
		}
	}
}

func (b *bindings) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.at)
}

// nodesUsed is the number of nodes that have a pod.
func (b *bindings) nodesUsed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	used := map[string]bool{}
	for _, node := range b.nodes {
		used[node] = true
	}
	return len(used)
}

// spread counts the most pods of one Service on one node, and the largest difference between two zones' pods of one
// Service.
func (b *bindings) spread() (mostOnNode, zoneSkew int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	type place struct{ app, where string }
	onNode, inZone := map[place]int{}, map[place]int{}
	apps := map[string]bool{}
	for name, node := range b.nodes {
		app := b.apps[name]
		apps[app] = true
		onNode[place{app, node}]++
		inZone[place{app, zoneOf(node)}]++
	}
	for _, n := range onNode {
		mostOnNode = max(mostOnNode, n)
	}
	for app := range apps {
		var counts []int
		for i := range zones {
			counts = append(counts, inZone[place{app, zoneName(i)}])
		}
		zoneSkew = max(zoneSkew, slices.Max(counts)-slices.Min(counts))
	}
	return mostOnNode, zoneSkew
}

// wait returns when n pods are bound.
func (b *bindings) wait(ctx context.Context, n int, limit time.Duration) error {
	timeout := time.After(limit)
	for b.count() < n {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout:
			return fmt.Errorf("only %d of %d pods were bound within %s", b.count(), n, limit)
		case <-b.cond:
		}
	}
	return nil
}
