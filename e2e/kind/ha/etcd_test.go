// SPDX-License-Identifier: Apache-2.0

package ha_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestEtcdLeaderKilled: the leading member of etcd is killed, and another leads. Dials through the API servers of the other members
// succeed, no server loses its Lease, and one replica of the second scheduler binds Pods.
func TestEtcdLeaderKilled(t *testing.T) {
	check(t, "another member leads", 6*time.Minute, func(ctx context.Context, t *testing.T) {
		leader, err := etcdLeader(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var others []apiServer
		for i, s := range servers {
			if i != leader {
				others = append(others, s)
			}
		}
		before, err := transitions(ctx, others[0])
		if err != nil {
			t.Fatal(err)
		}
		watched := watchLeases(ctx, others[0])
		var failed atomic.Int64
		var loads []*harness.Load
		for _, s := range others {
			loads = append(loads, harness.StartLoad(ctx, dialsPerSecond, harness.UntilItWorks(&failed, s.dial)))
		}
		loads = append(loads, harness.StartLoad(ctx, 1, others[0].binds))
		time.Sleep(3 * time.Second) // the load before anything happens
		killed, err := killUntilAnotherLeads(ctx, leader)
		if err != nil {
			t.Error(err)
		}
		t.Logf("killed %d times", killed)
		time.Sleep(40 * time.Second) // longer than a Lease of a server lasts without a renewal
		worst := time.Duration(0)
		for i, load := range loads {
			d := load.Stop()
			worst = max(worst, d.Max)
			t.Logf("load %d: %s", i, d)
			if d.Failed > 0 {
				t.Errorf("want that each dial and binding succeeds at last: %s", d)
			}
		}
		tunneltest.Unavailable(t, worst)
		t.Logf("%d attempts of dials failed", failed.Load())
		if fewest, asked := watched(); fewest < 3 || asked < 10 {
			t.Errorf("in %d lists, the servers had %d Leases at least, want 3", asked, fewest)
		}
		if err := errors.Join(waitForCount(ctx, suite.Client, 3), waitForAgents(ctx, suite.Client), oneBinds(ctx, others[0], before)); err != nil {
			t.Error(err)
		}
	})
}

// killUntilAnotherLeads kills a member of etcd, and again when it leads once more: the kubelet starts a container that ends for the first time at once,
// and that member may win the election that it caused. The next time, the kubelet waits for ten seconds. It returns how often it killed.
func killUntilAnotherLeads(ctx context.Context, member int) (killed int, err error) {
	kill := func() error {
		killed++
		_, err := harness.Run(ctx, servers[member].node, "pkill", "-KILL", "-x", "etcd")
		return err
	}
	if err := kill(); err != nil {
		return killed, err
	}
	return killed, harness.Wait(ctx, time.Minute, "another member of etcd to lead", func(ctx context.Context) error {
		next, err := etcdLeader(ctx)
		if err == nil && next == member {
			err = errors.Join(errors.New("the killed one leads"), kill())
		}
		return err
	})
}

// transitions is how often the Lease of the second scheduler has had another holder.
func transitions(ctx context.Context, s apiServer) (int, error) {
	lease, err := s.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "my-scheduler", metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("get the Lease of the second scheduler: %w", err)
	}
	return int(ptr.Deref(lease.Spec.LeaseTransitions, 0)), nil
}

// oneBinds looks at who has bound the Pods of binds: each Pod was bound once, and the replica that binds has changed no more often than the holder of
// the Lease since the test began. Two replicas that bind at the same time would take turns.
func oneBinds(ctx context.Context, s apiServer, before int) error {
	after, err := transitions(ctx, s)
	if err != nil {
		return err
	}
	list, err := s.Client.EventsV1().Events(harness.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Scheduled"})
	if err != nil {
		return fmt.Errorf("list events: %w", err)
	}
	events := slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return !strings.HasPrefix(e.Regarding.Name, "bound-") })
	slices.SortFunc(events, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	if len(events) == 0 {
		return errors.New("there is no event of a binding")
	}
	var faults []error
	bound, changes := map[types.UID]string{}, 0
	for i, e := range events {
		if note, again := bound[e.Regarding.UID]; again || e.Series != nil {
			faults = append(faults, fmt.Errorf("Pod %s was bound twice: %q and %q", e.Regarding.Name, note, e.Note))
		}
		bound[e.Regarding.UID] = e.Note
		if i > 0 && e.ReportingInstance != events[i-1].ReportingInstance {
			changes++
		}
	}
	if changes > after-before {
		faults = append(faults, fmt.Errorf("the replica that binds changed %d times, and the holder of the Lease %d times", changes, after-before))
	}
	return errors.Join(faults...)
}

// etcdLeader is the number of the control plane whose member of etcd says that it leads.
func etcdLeader(ctx context.Context) (int, error) {
	const script = `exec 3<>/dev/tcp/127.0.0.1/2381; printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3; grep '^etcd_server_is_leader ' <&3`
	found, texts := -1, ""
	for i, s := range servers {
		out, err := harness.Run(ctx, s.node, "timeout", "5", "bash", "-c", script)
		texts += fmt.Sprintf("%s: %s %v\n", s.node, strings.TrimSpace(out), err)
		if strings.TrimSpace(out) == "etcd_server_is_leader 1" {
			found = i
		}
	}
	if found < 0 {
		return 0, fmt.Errorf("no member of etcd leads:\n%s", texts)
	}
	return found, nil
}

// watchLeases counts the servers' Leases again and again. It returns a function that ends that and tells the smallest count.
func watchLeases(ctx context.Context, s apiServer) func() (fewest, asked int) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	fewest, asked := len(servers), 0
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if n, err := liveLeases(ctx, s.Client); err == nil {
				fewest, asked = min(fewest, n), asked+1
			}
			time.Sleep(200 * time.Millisecond) // how often Leases are counted
		}
	}()
	return func() (int, int) {
		cancel()
		<-done
		return fewest, asked
	}
}

// bindings numbers the Pods of binds.
var bindings atomic.Int64

// binds creates a Pod for the second scheduler, and waits until it has a node. It tries again while the API server has no etcd.
func (s apiServer) binds(ctx context.Context) error {
	pod := s.NewPod(fmt.Sprintf("bound-%d", bindings.Add(1)), "serve")
	pod.Spec.SchedulerName, pod.Spec.Containers[0].Image = "my-scheduler", "none"
	list := s.Client.CoreV1().Pods(harness.Namespace)
	defer func() { _ = list.Delete(context.WithoutCancel(ctx), pod.Name, *metav1.NewDeleteOptions(0)) }()
	return harness.Wait(ctx, 35*time.Second, "Pod "+pod.Name+" to be bound", func(ctx context.Context) error {
		got, err := list.Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			got, err = list.Create(ctx, pod, metav1.CreateOptions{})
		}
		if err == nil && got.Spec.NodeName == "" {
			err = errors.New("it has no node")
		}
		return err
	})
}
