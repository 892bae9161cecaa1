// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
)

// TestBoundOnlyBy: SCHED-42, the proof that a scheduler has bound a Pod is one event of events.k8s.io with reason Scheduled and
// action Binding, whose reportingController is the name of the profile. A core event has no action.
func TestBoundOnlyBy(t *testing.T) {
	event := func(reason, action, reporter string) eventsv1.Event {
		return eventsv1.Event{Reason: reason, Action: action, ReportingController: reporter, Regarding: corev1.ObjectReference{Kind: "Pod", UID: "x"}}
	}
	series := event("Scheduled", "Binding", "my-scheduler")
	series.Series = &eventsv1.EventSeries{Count: 2}
	node := event("Scheduled", "Binding", "my-scheduler")
	node.Regarding.Kind = "Node"
	for name, tc := range map[string]struct {
		events  []eventsv1.Event
		wantErr string
	}{
		"once":          {[]eventsv1.Event{event("Scheduled", "Binding", "my-scheduler")}, ""},
		"core event":    {[]eventsv1.Event{event("Scheduled", "", "my-scheduler")}, ""},
		"other action":  {[]eventsv1.Event{event("Scheduled", "Scheduling", "my-scheduler")}, `has action "Scheduling" instead of Binding`},
		"other profile": {[]eventsv1.Event{event("Scheduled", "Binding", "default-scheduler")}, `was bound by "default-scheduler"`},
		"twice":         {[]eventsv1.Event{event("Scheduled", "Binding", "my-scheduler"), event("Scheduled", "Binding", "my-scheduler")}, "was bound 2 times"},
		"series":        {[]eventsv1.Event{series}, "was bound 2 times"},
		"other reason":  {[]eventsv1.Event{event("FailedScheduling", "Binding", "my-scheduler")}, "was bound 0 times"},
		"other object":  {[]eventsv1.Event{node}, "was bound 0 times"},
	} {
		t.Run(name, func(t *testing.T) {
			err := boundOnlyBy("web", bindingsOf(tc.events)["x"], "my-scheduler")
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("got %v, want %q", err, tc.wantErr)
			}
		})
	}
}
