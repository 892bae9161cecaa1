// SPDX-License-Identifier: Apache-2.0

package politeevents

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/tools/events"
)

// written counts what reaches the API server.
type written struct {
	events.EventSink
	n int
}

func (w *written) Create(context.Context, *eventsv1.Event) (*eventsv1.Event, error) {
	w.n++
	return &eventsv1.Event{}, nil
}

// TestWhoWaits: warnings, and event series that must be created again, do not
// wait.
func TestWhoWaits(t *testing.T) {
	for name, tt := range map[string]struct {
		event *eventsv1.Event
		waits bool
	}{
		"normal":  {&eventsv1.Event{Type: corev1.EventTypeNormal}, true},
		"warning": {&eventsv1.Event{Type: corev1.EventTypeWarning}, false},
		"series":  {&eventsv1.Event{Type: corev1.EventTypeNormal, Series: &eventsv1.EventSeries{}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, w := NewGate(limit), &written{}
				defer g.Binding()()
				s := &sink{w, g}
				start := time.Now()
				if event, err := s.Create(t.Context(), tt.event); err != nil || event == nil {
					t.Errorf("got %v, %v", event, err)
				}
				if waited := time.Since(start) >= limit; waited != tt.waits || w.n != 1 {
					t.Errorf("waited: %t, want %t; written %d times", waited, tt.waits, w.n)
				}
			})
		})
	}
}
