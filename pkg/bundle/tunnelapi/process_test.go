// SPDX-License-Identifier: Apache-2.0

package tunnelapi_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/app"
)

// TestGrace: the kubelet does not kill a Pod before clients had their time to go elsewhere and then connections had theirs,
// were reset, and watches were ended, also if extraArgs give them another time.
func TestGrace(t *testing.T) {
	for _, config := range []string{
		"tunnelAPI: {enabled: true}",
		"tunnelAPI: {enabled: true, connect: true, extraArgs: [{name: connect-drain-timeout, value: 2m30s}]}",
		"tunnelAPI: {enabled: true, extraArgs: [{name: shutdown-delay-duration, value: 1m}]}",
		"tunnelAPI: {enabled: true, connect: true, extraArgs: [{name: shutdown-delay-duration, value: 1m}, {name: connect-drain-timeout, value: 1m}]}",
	} {
		list := objects(t, config)
		pod := list[len(list)-1].(*appsv1.Deployment).Spec.Template.Spec
		cmd := app.NewCommand()
		if err := cmd.ParseFlags(pod.Containers[0].Args); err != nil {
			t.Fatal(err)
		}
		flag := func(name string) time.Duration {
			d, err := cmd.Flags().GetDuration(name)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		const reset, watches = 5 * time.Second, 2 * time.Second
		takes := flag("shutdown-delay-duration") + flag("connect-drain-timeout") + reset + watches
		if g := pod.TerminationGracePeriodSeconds; g == nil || time.Duration(*g)*time.Second < takes+5*time.Second {
			t.Errorf("%q: the Pod has %d s to stop, which takes up to %v", config, ptr.Deref(g, 0), takes)
		}
	}
}

// TestReadiness: a replica that refuses connections is no endpoint after 3 s. One that is busy has 2 s for each answer, and is
// no endpoint only after as long as the other programs of the bundle.
func TestReadiness(t *testing.T) {
	list := objects(t, "tunnelAPI: {enabled: true}")
	p := list[len(list)-1].(*appsv1.Deployment).Spec.Template.Spec.Containers[0].ReadinessProbe
	if refuses := p.PeriodSeconds * p.FailureThreshold; refuses > 3 {
		t.Errorf("a replica that refuses connections is an endpoint for %d s", refuses)
	}
	if other := component.Readiness(component.Probe{}); max(1, p.TimeoutSeconds)*p.FailureThreshold < other.FailureThreshold {
		t.Errorf("a busy replica is no endpoint after %d probes of %d s", p.FailureThreshold, p.TimeoutSeconds)
	}
}

// TestMemoryLimit: the garbage collector knows the container's memory limit, and works harder before the kernel kills the
// program.
func TestMemoryLimit(t *testing.T) {
	for config, want := range map[string]string{
		"tunnelAPI: {enabled: true}":                                         "456340275", // 85% of 512Mi
		"tunnelAPI: {enabled: true, resources: {limits: {memory: 100M}}}":    "85000000",
		"tunnelAPI: {enabled: true, resources: {requests: {memory: 100Mi}}}": "",
	} {
		list, got := objects(t, config), ""
		for _, e := range list[len(list)-1].(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Env {
			if e.Name == "GOMEMLIMIT" {
				got = e.Value
			}
		}
		if got != want {
			t.Errorf("%q: GOMEMLIMIT is %q, want %q", config, got, want)
		}
	}
}
