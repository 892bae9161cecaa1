// SPDX-License-Identifier: Apache-2.0

package politeevents

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// Install makes all profiles of a scheduler that does not run yet record their events through the gate. Events of plugins
// do not pass through it: plugins got their recorder when the profile was created. Recording ends with the context.
func Install(ctx context.Context, gate *Gate, profiles profile.Map, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for events: %w", err)
	}
	broadcaster := events.NewBroadcaster(&sink{&events.EventSinkImpl{Interface: client.EventsV1()}, gate})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("start recording events: %w", err)
	}
	context.AfterFunc(ctx, broadcaster.Shutdown)
	for name, f := range profiles {
		profiles[name] = &polite{f, gate, broadcaster.NewRecorder(scheme.Scheme, name)}
	}
	show(gate)
	return nil
}

// polite is a profile whose bindings keep the gate shut, and whose events pass it.
type polite struct {
	framework.Framework
	gate     *Gate
	recorder events.EventRecorderLogger
}

// RunBindPlugins keeps the gate shut while it runs.
func (p *polite) RunBindPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	defer p.gate.Binding()()
	return p.Framework.RunBindPlugins(ctx, state, pod, nodeName)
}

// EventRecorder is the one whose events pass the gate.
func (p *polite) EventRecorder() events.EventRecorderLogger { return p.recorder }

// sink writes normal events that are new when the gate lets them through, others at once: a user may be waiting for a
// warning, and client-go updates series of events one after the other while it holds a lock.
type sink struct {
	events.EventSink
	gate *Gate
}

// Create makes the recorder's goroutine for this event wait. The event already has its timestamp.
func (s *sink) Create(ctx context.Context, event *eventsv1.Event) (created *eventsv1.Event, err error) {
	if event.Type != corev1.EventTypeNormal || event.Series != nil {
		return s.EventSink.Create(ctx, event)
	}
	if stopped := s.gate.Pass(ctx, func() { created, err = s.EventSink.Create(ctx, event) }); stopped != nil {
		return nil, stopped
	}
	return created, err
}

// shown is the gate that the metric reports. A process has one scheduler.
var shown struct {
	sync.Mutex
	gate *Gate
}

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.RawMustRegister(metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Name:           "fairlead_scheduler_waiting_events",
		Help:           "Events that wait for bindings to end, or are being written.",
		StabilityLevel: metrics.ALPHA,
	}, func() float64 {
		shown.Lock()
		defer shown.Unlock()
		return float64(shown.gate.Waiting())
	}))
})

func show(gate *Gate) {
	shown.Lock()
	shown.gate = gate
	shown.Unlock()
	registerMetrics()
}
