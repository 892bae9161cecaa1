// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestNeeded: in every form of the tunnel its workloads, account and binding count as
// needed, under whatever names; nothing of the second scheduler does.
func TestNeeded(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*v1alpha1.Konnectivity)
		want []string
	}{
		"default": {func(*v1alpha1.Konnectivity) {}, []string{"ClusterRoleBinding", "ServiceAccount", "DaemonSet"}},
		"other account, agents as a Deployment": {func(k *v1alpha1.Konnectivity) {
			k.AgentServiceAccount, k.Agent.Form = "tunnel", v1alpha1.FormDeployment
		}, []string{"ClusterRoleBinding", "ServiceAccount", "Deployment"}},
		"servers as a DaemonSet, Leases counted": {func(k *v1alpha1.Konnectivity) {
			k.Server.Form, k.LeaseCounting = v1alpha1.FormDaemonSet, ptr.To(true)
		}, []string{"ClusterRoleBinding", "DaemonSet", "ServiceAccount", "DaemonSet"}},
	} {
		b := &v1alpha1.Bundle{}
		tc.edit(&b.Konnectivity)
		tunnel, err := konnectivity.Objects(b)
		if err != nil {
			t.Fatal(err)
		}
		second, err := scheduler.Objects(b)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range append(tunnel, second...) {
			if kind := o.GetObjectKind().GroupVersionKind().Kind; konnectivity.Needed(kind, o.GetName(), o.GetLabels()) {
				got = append(got, kind)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
