// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// scheduledEvents are the events Scheduled, by Pod.
func scheduledEvents(t *testing.T, cp cluster) map[string]eventsv1.Event {
	t.Helper()
	list, err := cp.Client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Scheduled"})
	if err != nil {
		t.Fatal(err)
	}
	events := map[string]eventsv1.Event{}
	for _, e := range list.Items {
		if _, twice := events[e.Regarding.Name]; twice {
			t.Errorf("two events for %s", e.Regarding.Name)
		}
		events[e.Regarding.Name] = e
	}
	return events
}

// burst starts a scheduler with n nodes and n waiting Pods of fairlead-batch.
func burst(t *testing.T, n int) (cluster, installed) {
	t.Helper()
	cp := newCluster(t)
	makeNodes(t, cp.Client, n)
	makePods(t, cp.Client, "batch", v1alpha1.DefaultBatchProfile, "3", n)
	return cp, install(t, cp, allProfiles())
}

// TestEventsFollowTheBurst: Pods are bound first, and each still gets its event, with the time of its binding.
func TestEventsFollowTheBurst(t *testing.T) {
	const n = 300
	testutil.Full(t, "binds hundreds of Pods")
	cp, s := burst(t, n)
	nodes := waitBound(t, cp.Client, "batch", n)
	allBound := time.Now()
	var events map[string]eventsv1.Event
	daemontest.Eventually(t, patience, func() error {
		if events = scheduledEvents(t, cp); len(events) < n {
			return fmt.Errorf("%d of %d events", len(events), n)
		}
		return nil
	})
	last, early := lastBinding(t, cp), 0
	for pod, node := range nodes {
		e := events[pod]
		if revision(t, e.ResourceVersion) < last {
			early++
		}
		if want := "Successfully assigned default/" + pod + " to " + node; e.Note != want || e.ReportingController != v1alpha1.DefaultBatchProfile {
			t.Errorf("event of %s: %q by %s, want %q", pod, e.Note, e.ReportingController, want)
		}
		// The scheduler hears of a binding after the API server shows it.
		if late := e.EventTime.Sub(allBound); late > patience {
			t.Errorf("event of %s is from %v after the last binding", pod, late)
		}
	}
	t.Logf("%d of %d events were written before the last binding", early, n)
	// Without waiting it is nearly all of them; a slow scheduler leaves gaps between bindings.
	if early > n*9/10 {
		t.Errorf("%d of %d events were written before the last binding", early, n)
	}
	daemontest.Eventually(t, patience, func() error {
		if _, page := s.get(t, cp, "/metrics"); !strings.Contains(page, "\nfairlead_scheduler_waiting_events 0\n") {
			return errors.New("fairlead_scheduler_waiting_events is not 0")
		}
		return nil
	})
}

// lastBinding is the revision of the last binding: nothing has written Pods since.
func lastBinding(t *testing.T, cp cluster) (last int) {
	t.Helper()
	list, err := cp.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		last = max(last, revision(t, p.ResourceVersion))
	}
	return last
}

// revision is etcd's, which all objects share.
func revision(t *testing.T, resourceVersion string) int {
	t.Helper()
	n, err := strconv.Atoi(resourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestEventsSurviveStopping: a scheduler that is stopped in the middle of a burst writes the events of what it has bound.
func TestEventsSurviveStopping(t *testing.T) {
	const n = 400
	testutil.Full(t, "binds hundreds of Pods")
	cp, s := burst(t, n)
	nodes := waitBound(t, cp.Client, "batch", n/4)
	s.Terminate(t)
	if code := s.ExitCode(t, patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	events := scheduledEvents(t, cp)
	t.Logf("%d Pods were bound when the scheduler was stopped, %d events in the end", len(nodes), len(events))
	for pod := range nodes {
		if _, ok := events[pod]; !ok {
			t.Errorf("%s was bound and has no event", pod)
		}
	}
}
