// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

// TestAnotherSchedulersReplicas: if --scheduler-name names a scheduler other than the bundle's, verify does not know
// its replicas and must not report its leader as foreign.
func TestAnotherSchedulersReplicas(t *testing.T) {
	lease := types.NamespacedName{Namespace: "kube-system", Name: "my-scheduler"}
	for name, tc := range map[string]struct {
		scheduler, lease string
		known            bool
	}{
		"the bundle's":              {"", "", true},
		"another profile of it":     {"fairlead-batch", "", true},
		"the bundle's by flags":     {"my-scheduler", "kube-system/my-scheduler", true},
		"the bundle's, other Lease": {"my-scheduler", "kube-system/other", true},
		"another scheduler":         {"other", "kube-system/other", false},
	} {
		t.Run(name, func(t *testing.T) {
			o := &Options{SchedulerName: tc.scheduler, Lease: tc.lease}
			if tc.lease != "" {
				o.lease = types.NamespacedName{Namespace: "kube-system", Name: tc.lease[len("kube-system/"):]}
			}
			env := o.override(&check.Env{
				Config: &rest.Config{Host: "x"}, SchedulerName: "my-scheduler", Lease: lease, IdentityLimit: "hosts are alike",
				Coexistence:  check.Coexistence{SchedulerNames: []string{"my-scheduler", "fairlead-batch"}, ConfigMap: types.NamespacedName{Name: "my-scheduler-config"}},
				OwnsIdentity: func(context.Context, string) (bool, error) { return false, nil },
			})
			if (env.OwnsIdentity != nil) != tc.known || (env.IdentityLimit != "") != tc.known || (env.Coexistence.ConfigMap.Name != "") != tc.known {
				t.Errorf("got %+v", env)
			}
			if !tc.known && (env.Lease.Name != "other" || len(env.Coexistence.SchedulerNames) != 1 || env.Coexistence.SchedulerNames[0] != "other") {
				t.Errorf("got Lease %s, names %v", env.Lease, env.Coexistence.SchedulerNames)
			}
		})
	}
}
