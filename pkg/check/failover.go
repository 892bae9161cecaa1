// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podsAtMost keeps a slow failover from filling a small cluster.
const podsAtMost = 60

// schedulerFailover proves that killing the leader costs at most TakeoverLimit (see Env), that each pod which arrives meanwhile is bound exactly
// once, and that the old holder does not lead at the same time as the new one.
func schedulerFailover(ctx context.Context, s *Scope) error {
	if s.Parts == nil {
		return Skip("killing the leader of the second scheduler is not supported on this cluster")
	}
	lease, err := s.heldLease(ctx)
	if err != nil {
		return err
	}
	// A Lease whose holder is dead already would be taken over early and prove nothing.
	if err := s.watchRenewal(ctx, lease); err != nil {
		return err
	}
	traffic, err := s.startTraffic(ctx)
	if err != nil {
		return err
	}
	defer traffic.stop()
	// Read again, so that what is renewed from here on is renewed by a leader that lives on.
	if lease, err = s.heldLease(ctx); err != nil {
		return err
	}
	old := holderOf(lease)
	killed := death{ordered: time.Now()}
	if err := s.Parts.KillLeader(ctx, old); err != nil {
		return fmt.Errorf("kill the leader %s: %w", old, err)
	}
	killed.done = time.Now()
	next, err := s.waitTakeover(ctx, lease, &killed)
	if err != nil {
		return err
	}
	if err := s.staysLeader(ctx, next, s.times.steady); err != nil {
		return err
	}
	return s.eachBoundOnce(ctx, traffic.stop(), killed)
}

// waitTakeover waits for another holder and compares the time since the leader's death with the limit. It waits longer than the limit, to tell a
// slow takeover from none.
func (s *Scope) waitTakeover(ctx context.Context, old *coordinationv1.Lease, killed *death) (string, error) {
	waitCtx, cancel := context.WithTimeout(ctx, s.TakeoverLimit+20*time.Second)
	defer cancel()
	var next string
	seen, asked := old.Spec.RenewTime, killed.ordered
	err := waitFor(waitCtx, 50*time.Millisecond, func(ctx context.Context) error {
		now := time.Now()
		lease, err := s.getLease(ctx, s.Lease)
		if err != nil {
			return err
		}
		before := asked // the last answer was as things were then, at the earliest
		asked = now
		if next = holderOf(lease); next != "" && next != holderOf(old) {
			return nil
		}
		if next != "" && !lease.Spec.RenewTime.Equal(seen) {
			seen, killed.renewed, killed.lived = lease.Spec.RenewTime, before, time.Now()
		}
		if time.Since(killed.lived) < leaseDuration(old) {
			return fmt.Errorf("%s still renews Lease %s, %s after SIGKILL was requested", holderOf(old), s.Lease, killed.lived.Sub(killed.ordered).Round(time.Second))
		}
		return fmt.Errorf("no replica took over Lease %s from %s within %s after it was killed", s.Lease, holderOf(old), time.Since(killed.at()).Round(time.Second))
	})
	if err != nil {
		return "", err
	}
	took := time.Since(killed.at())
	s.Detail("takeover", "%.1f s (limit %s)", took.Seconds(), s.TakeoverLimit)
	s.Detail("old-holder", "%s", holderOf(old))
	s.Detail("new-holder", "%s", next)
	if outlived := killed.at().Sub(killed.ordered); outlived > 0 {
		s.Detail("old-holder-outlived", "old leader exited %.1f s after SIGKILL was requested (not counted)", outlived.Seconds())
	}
	if took > s.TakeoverLimit {
		return "", WithHint(fmt.Errorf("the takeover of Lease %s took %.1f s, more than %s", s.Lease, took.Seconds(), s.TakeoverLimit),
			"the worst case is the duration of the Lease plus 4.4 retry periods: lower scheduler.leaderElection.leaseDurationSeconds and retryPeriodSeconds in the bundle")
	}
	return next, nil
}

// staysLeader fails when the Lease leaves next within d.
func (s *Scope) staysLeader(ctx context.Context, next string, d time.Duration) error {
	until := time.Now().Add(d)
	for time.Now().Before(until) {
		lease, err := s.getLease(ctx, s.Lease)
		if err != nil {
			return err
		}
		if holder := holderOf(lease); holder != next {
			return fmt.Errorf("%s after the takeover, Lease %s went from %s to %s: two replicas act as leader", d-time.Until(until).Round(time.Second), s.Lease, next, holder)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// eachBoundOnce waits until every pod is bound and compares what the watch and the events say about each.
func (s *Scope) eachBoundOnce(ctx context.Context, seen *bindLog, killed death) error {
	if err := s.waitAllBound(ctx, seen); err != nil {
		return err
	}
	// A second event for a pod may still be on its way.
	if err := sleep(ctx, s.times.settle); err != nil {
		return err
	}
	events, err := s.allEvents(ctx, seen, killed)
	if err != nil {
		return err
	}
	if err := seen.verdict(events, s.SchedulerName, killed); err != nil {
		return err
	}
	s.Detail("pods", "%d created during the failover, each bound exactly once", len(seen.pods))
	return nil
}

// allEvents returns the events of binding once every pod has one that must, or after the longest that a scheduler holds them back.
func (s *Scope) allEvents(ctx context.Context, seen *bindLog, killed death) (map[types.UID][]binding, error) {
	for until := time.Now().Add(s.times.events); ; {
		events, err := s.scheduledEvents(ctx, s.namespace.Name)
		if err != nil || seen.lacking(events, killed) == 0 || time.Now().After(until) {
			return events, err
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func (s *Scope) waitAllBound(ctx context.Context, seen *bindLog) error {
	return waitFor(ctx, 200*time.Millisecond, func(ctx context.Context) error {
		list, err := s.Client.CoreV1().Pods(s.namespace.Name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			seen.see(&list.Items[i], time.Now())
		}
		return seen.unbound()
	})
}

// trafficPod is one of the pods that arrive during the failover.
func trafficPod(i int, scheduler, image string) *corev1.Pod {
	return newPod(fmt.Sprintf("failover-%03d", i), scheduler, corev1.Container{Name: "pause", Image: image})
}
