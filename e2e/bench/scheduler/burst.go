// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// burst measures how the Pods that wait for the scheduler are bound.
func (r *result) burst(ctx context.Context, cp *controlPlane, bound *bindings, scheduler *running, o options) error {
	if err := bound.wait(ctx, 1, patience); err != nil {
		return err
	}
	before, already := cp.usage(scheduler.program), bound.count()
	profiled := r.profile(ctx, scheduler, o)
	if err := bound.wait(ctx, r.Pods, 5*time.Minute); err != nil {
		return err
	}
	after := cp.usage(scheduler.program)
	if err := waitEvents(ctx, cp.client, r.Pods); err != nil {
		return err
	}
	written := cp.usage(scheduler.program)
	counted := float64(r.Pods - already)
	r.PodsPerSecond = counted / after.at.Sub(before.at).Seconds()
	r.EventSeconds = written.at.Sub(after.at).Seconds()
	r.CPUMillisPerPod = (written.scheduler - before.scheduler) / counted
	r.ServerMillisPerPod = (written.server() - before.server()) / counted
	r.BindMillisPerPod = (after.server() - before.server()) / counted
	r.Others = after.others(before)
	r.NodesUsed = bound.nodesUsed()
	if r.Workload == services {
		r.MostOnNode, r.ZoneSkew = bound.spread()
	}
	return <-profiled
}

// profile takes a CPU profile of the scheduler while it works on the burst, if a directory for profiles is given.
func (r *result) profile(ctx context.Context, scheduler *running, o options) <-chan error {
	done := make(chan error, 1)
	if o.profiles == "" {
		done <- nil
		return done
	}
	go func() {
		data, err := ask(ctx, scheduler.port, "/debug/pprof/profile?seconds="+strconv.Itoa(o.profileSeconds))
		if err == nil {
			name := fmt.Sprintf("%d-%s-%s-%d.pprof", r.Nodes, r.Workload, r.Scheduler, r.When.Unix())
			err = os.WriteFile(filepath.Join(o.profiles, name), data, 0o644)
		}
		done <- err
	}()
	return done
}

// waitEvents returns when a namespace has n events. Counting them costs the API server almost nothing.
func waitEvents(ctx context.Context, client kubernetes.Interface, n int) error {
	const interval = 200 * time.Millisecond
	there := 0
	for end := time.Now().Add(patience); time.Now().Before(end); {
		list, err := client.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return fmt.Errorf("count events: %w", err)
		}
		there = len(list.Items)
		if list.RemainingItemCount != nil {
			there += int(*list.RemainingItemCount)
		}
		if there >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(interval):
		}
	}
	return fmt.Errorf("only %d events of %d Pods were written within %s", there, n, patience)
}
