// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// binding is what a Scheduled event says: who bound a pod, and how often it says so.
type binding struct {
	reporter, action string
	count            int32
}

// scheduledEvents returns the Scheduled events of the pods in namespace, by pod UID.
func (s *Scope) scheduledEvents(ctx context.Context, namespace string) (map[types.UID][]binding, error) {
	list, err := s.Client.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Scheduled"})
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	return bindingsOf(list.Items), nil
}

func bindingsOf(events []eventsv1.Event) map[types.UID][]binding {
	out := map[types.UID][]binding{}
	for _, e := range events {
		if e.Reason != "Scheduled" || e.Regarding.Kind != "Pod" {
			continue
		}
		b := binding{reporter: e.ReportingController, action: e.Action, count: 1}
		if e.Series != nil {
			b.count = e.Series.Count
		}
		out[e.Regarding.UID] = append(out[e.Regarding.UID], b)
	}
	return out
}

func noEvent(pod, node string) error {
	return fmt.Errorf("pod %s is bound to %s, but no Scheduled event names the scheduler", pod, node)
}

// boundOnlyBy says whether bindings are exactly one, by scheduler.
func boundOnlyBy(pod string, bindings []binding, scheduler string) error {
	var total int32
	for _, b := range bindings {
		total += b.count
		if b.reporter != scheduler {
			return WithHint(fmt.Errorf("pod %s names scheduler %q but was bound by %q", pod, scheduler, b.reporter),
				"two schedulers use the same schedulerName: give every profile its own name")
		}
		// A scheduler that started before its API server, as kubeadm's does, found no events.k8s.io there and writes core events, which have no action.
		if b.action != "Binding" && b.action != "" {
			return fmt.Errorf("the Scheduled event of pod %s has action %q instead of Binding", pod, b.action)
		}
	}
	if total != 1 {
		return WithHint(fmt.Errorf("pod %s was bound %d times by %q", pod, total, scheduler), "two replicas of %q schedule at once: check that leader election is on, with one Lease", scheduler)
	}
	return nil
}
