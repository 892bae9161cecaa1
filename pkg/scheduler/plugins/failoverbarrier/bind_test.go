// SPDX-License-Identifier: Apache-2.0

package failoverbarrier

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/plugintest"
)

// devices are what DeviceClasses stand for.
type devices struct{ fwk.SharedDRAManager }

func (d devices) DeviceClassResolver() fwk.DeviceClassResolver { return d }

func (devices) GetDeviceClass(name corev1.ResourceName) *resourceapi.DeviceClass {
	if name == "example.com/gpu" {
		return &resourceapi.DeviceClass{}
	}
	return nil
}

// withDevices is a handle that has DeviceClasses.
type withDevices struct{ framework.Framework }

func (withDevices) SharedDRAManager() fwk.SharedDRAManager { return devices{} }

// slowly is a plugin that delays every pod before the binding, or makes it wait in Permit.
type slowly struct{ wait func() }

func (slowly) Name() string { return "Slowly" }

func (slowly) PreBindPreFlight(context.Context, fwk.CycleState, *corev1.Pod, string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	return nil, nil
}

func (s slowly) PreBind(context.Context, fwk.CycleState, *corev1.Pod, string) *fwk.Status {
	s.wait()
	return nil
}

func (s slowly) Permit(context.Context, fwk.CycleState, *corev1.Pod, string) (*fwk.Status, time.Duration) {
	return fwk.NewStatus(fwk.Wait), time.Minute
}

// choosing is a leader with the barrier open, with further plugins ahead of it.
func choosing(t *testing.T, m *machine, further ...plugintest.Plugin) *plugintest.Cluster {
	t.Helper()
	lease := &Lease{Slack: 3 * time.Second, Grace: 14 * time.Second}
	barrier := plugintest.Plugin{Name: Name, Points: []string{"PreFilter", "PreBind"}, Factory: func(ctx context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		return newPlugin(ctx, withDevices{h.(framework.Framework)}, 300*time.Millisecond, says(bound("a")), newTenure(lease, m.read, newPulse(lease, m.now))), nil
	}}
	c := plugintest.NewWith(t, []*corev1.Node{node()}, []*corev1.Pod{pod("a", "n")}, nil, append(further, barrier)...)
	plugintest.Eventually(t, "the barrier to open", func() bool { said, _ := c.Filter(t, pod("new", "")); return said["n"] == "" })
	return c
}

// TestLastLook: a suspension between the choice of a node and the binding is noticed, whichever plugin takes time in
// between. If none does, the scheduler does not write the nominated node into the pod's status first.
func TestLastLook(t *testing.T) {
	asks := func(name corev1.ResourceName) *corev1.Pod {
		return st.MakePod().Name("new").Namespace("default").UID("new").SchedulerName(plugintest.Profile).Req(map[corev1.ResourceName]string{name: "1"}).Obj()
	}
	initialized := pod("new", "")
	initialized.Spec.InitContainers = asks("example.com/gpu").Spec.Containers
	for name, tc := range map[string]struct {
		pod       *corev1.Pod
		points    []string // of the plugin that takes its time
		announced bool
	}{
		"a claim of DynamicResources' own":        {asks("example.com/gpu"), nil, true},
		"such a claim for an init container":      {initialized, nil, true},
		"an extended resource of a device plugin": {asks("example.com/nic"), nil, false},
		"another PreBind plugin":                  {pod("new", ""), []string{"PreBind"}, true},
		"a permit":                                {pod("new", ""), []string{"Permit"}, true},
		"nothing":                                 {pod("new", ""), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine("us")
			suspend := func() { m.pass(20*time.Second, 20*time.Second) }
			var further []plugintest.Plugin
			if tc.points != nil {
				further = append(further, plugintest.Plugin{Name: "Slowly", Points: tc.points, Factory: func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
					return slowly{suspend}, nil
				}})
			}
			c := choosing(t, m, further...)
			_, state := c.Filter(t, tc.pod)
			if timeouts, status := c.Framework.RunPermitPlugins(t.Context(), state, tc.pod, "n"); status.IsWait() {
				c.Framework.AddWaitingPod(tc.pod, timeouts)
			}
			status := c.Framework.RunPreBindPreFlights(t.Context(), state, tc.pod, "n")
			if status.IsSuccess() != tc.announced || !tc.announced && !status.IsSkip() {
				t.Fatalf("the node is announced: %v, want %t", status, tc.announced)
			}
			if !tc.announced {
				return
			}
			if !slices.Contains(tc.points, "PreBind") {
				suspend()
			}
			if status := c.Framework.RunPreBindPlugins(t.Context(), state, tc.pod, "n"); !strings.Contains(status.Message(), suspended) {
				t.Errorf("bound after the suspension: %v", status)
			}
		})
	}
}
