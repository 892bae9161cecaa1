// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// TestServerDrains: the server has as long to drain as the bundle says before the
// kubelet kills it, and the default leaves room within the 30 s for which
// kube-apiserver's client tries to connect.
func TestServerDrains(t *testing.T) {
	for in, want := range map[time.Duration]struct {
		value string
		grace int64
	}{
		-1:               {"5s", 15}, // not set
		0:                {"0s", 10},
		90 * time.Second: {"1m30s", 100},
	} {
		b := v1alpha1.New()
		if in >= 0 {
			b.Konnectivity.Server.DrainTimeout = &metav1.Duration{Duration: in}
		}
		spec := staticServer(t, b).Spec
		env := spec.Containers[0].Env
		rows(t, env, map[string]bool{
			"value": len(env) == 2 && env[0].Name == settings.DrainTimeout && env[0].Value == want.value,
			"grace": ptr.Deref(spec.TerminationGracePeriodSeconds, 30) == want.grace,
		})
	}
}

// TestDrainTimeoutInvalid: values that cannot be rendered exactly are rejected.
func TestDrainTimeoutInvalid(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, 1500 * time.Millisecond, 2 * time.Hour} {
		b := v1alpha1.New()
		b.Konnectivity.Server.DrainTimeout = &metav1.Duration{Duration: d}
		if errs := v1alpha1.Validate(b.Defaulted()); len(errs) != 1 || errs[0].Field != "spec.konnectivity.server.drainTimeout" {
			t.Errorf("%v: %v", d, errs)
		}
	}
}
