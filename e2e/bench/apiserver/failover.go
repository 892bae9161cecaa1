// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

const (
	goalResumed = 2 * time.Second
	replicas    = 3
	// beat is how often an agent changes, in each second: the gap between two events is seen to that precision.
	beat = 20
)

// failover kills the one of three API servers that serves a watch, and measures how long the client sees no events. An agent
// leaves meanwhile, and it is an error if the client does not have what the servers show in the end. The
// goal is for a dead server that is no endpoint any more, and for one that still is. While it is one, kube-apiserver answers with status 503 when it
// chooses it, and client-go waits longer after each of these answers.
func (b *bench) failover(ctx context.Context, c *embeddedCluster) error {
	src := newSource("failing", 10)
	url, stop, err := src.serve(ctx, b.dir)
	if err != nil {
		return err
	}
	defer stop()
	src.setRate(beat)
	all := make([]*server, replicas)
	defer func() {
		for _, s := range all {
			if s != nil {
				s.kill()
			}
		}
	}()
	for i := range all {
		if all[i], err = b.replica(ctx, c, i, url); err != nil {
			return err
		}
	}
	if err := c.kube.DiscoveryV1().EndpointSlices(namespace).Delete(ctx, program, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := c.supervisor.Stop(ctx, program); err != nil {
		return err
	}
	for _, listed := range []bool{false, true} {
		var gaps []time.Duration
		for len(gaps) < b.kills {
			gap, i, err := b.killOne(ctx, c, src, all, listed)
			if err != nil {
				return err
			}
			gaps = append(gaps, gap)
			if all[i], err = b.replica(ctx, c, i, url); err != nil {
				return err
			}
		}
		if listed {
			const what = "the same, and the dead server is still listed as an endpoint: "
			row(what+"p50", "%v", quantile(gaps, 0.5))
			goal(b, what+"longest", quantile(gaps, 1), goalResumed)
			continue
		}
		what := fmt.Sprintf("watch without events after its server of %d was killed, %d times: ", replicas, b.kills)
		row(what+"p50", "%v", quantile(gaps, 0.5))
		goal(b, what+"longest", quantile(gaps, 1), goalResumed)
	}
	return nil
}

// killOne watches by an informer, as controllers do, and kills the server of its watch.
func (b *bench) killOne(ctx context.Context, c *embeddedCluster, src *source, all []*server, listed bool) (time.Duration, int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return 0, 0, err
	}
	var last atomic.Int64
	seen := func(any) { last.Store(time.Now().UnixNano()) }
	informer := dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(agentsResource).Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, o any) { seen(o) }}); err != nil {
		return 0, 0, err
	}
	go informer.RunWithContext(ctx)
	live := func(after int64) func(context.Context) error {
		return func(context.Context) error {
			if last.Load() <= after {
				return errors.New("there are none")
			}
			return nil
		}
	}
	if err := b.until(ctx, "events", live(0)); err != nil {
		return 0, 0, err
	}
	if err := wait(ctx, time.Second); err != nil {
		return 0, 0, err
	}
	victim := -1
	for i, s := range all {
		n, err := s.metric(ctx, "apiserver_longrunning_requests", "resource", "tunnelagents")
		if err != nil {
			return 0, 0, err
		}
		if n > 0 {
			victim = i
		}
	}
	if victim < 0 {
		return 0, 0, errors.New("no server has the watch")
	}
	all[victim].kill()
	killed := time.Now()
	src.leave(1)
	defer src.leave(0)
	if !listed {
		if err := c.kube.DiscoveryV1().EndpointSlices(namespace).Delete(ctx, sliceName(victim), metav1.DeleteOptions{}); err != nil {
			return 0, 0, err
		}
	}
	err = b.until(ctx, "events after the loss of a server", live(killed.Add(100*time.Millisecond).UnixNano())) // what was on its way is no resumption
	if err != nil {
		return 0, 0, errors.Join(err, c.available(ctx, "shown"))
	}
	gap := time.Unix(0, last.Load()).Sub(killed)
	return gap, victim, b.until(ctx, "the watch's client to have what the servers show", func(ctx context.Context) error {
		return same(ctx, client.Resource(agentsResource), informer.GetStore(), len(src.links)-1)
	})
}

var agentsResource = v1alpha1.SchemeGroupVersion.WithResource("tunnelagents")

// same compares what an informer has with what a server shows: so many objects, by their names and UIDs.
func same(ctx context.Context, agents dynamic.ResourceInterface, has cache.Store, count int) error {
	list, err := agents.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(list.Items) != count || len(has.ListKeys()) != count {
		return fmt.Errorf("the servers show %d agents, and the client has %d, of %d", len(list.Items), len(has.ListKeys()), count)
	}
	for i := range list.Items {
		o, ok, err := has.GetByKey(list.Items[i].GetName())
		if err != nil {
			return err
		}
		if !ok || o.(metav1.Object).GetUID() != list.Items[i].GetUID() {
			return fmt.Errorf("agent %s is not what the client has: %v", list.Items[i].GetName(), o)
		}
	}
	return nil
}
