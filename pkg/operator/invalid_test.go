// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestInvalidBundleObserved: while a Bundle is not valid, its status says what is known of the cluster, and nothing of before.
func TestInvalidBundleObserved(t *testing.T) {
	testutil.Full(t, "a variant of TestBundle")
	daemontest.Beside(t)
	l := startProfiles(t, map[string]any{})
	agents := func(ready int32) {
		t.Helper()
		daemonSets := l.client.AppsV1().DaemonSets("kube-system")
		d, err := daemonSets.Get(t.Context(), "konnectivity-agent", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		d.Status.NumberReady, d.Status.DesiredNumberScheduled = ready, 2
		if _, err := daemonSets.UpdateStatus(t.Context(), d, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		l.look()
	}
	says := func(ready int32, want map[string]string) {
		t.Helper()
		b, err := l.bundle()
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range want {
			c := meta.FindStatusCondition(b.Status.Conditions, name)
			if c == nil || string(c.Status)+" "+c.Reason != want || c.ObservedGeneration != b.Generation || c.Message == "" {
				t.Errorf("generation %d: condition %s is %+v, want %s", b.Generation, name, c, want)
			}
		}
		found := false
		for _, c := range b.Status.Components {
			found = found || c.Name == "konnectivity-agent" && c.Kind == "DaemonSet" && c.Ready == ready && c.Desired == 2 && c.Image != ""
		}
		if !found || len(b.Status.Components) != 2 {
			t.Errorf("the workloads are %+v, want %d agents", b.Status.Components, ready)
		}
	}
	l.look()
	agents(2)
	says(2, map[string]string{
		v1beta1.BundleTunnelAvailable: "True Available", v1beta1.BundleProgressing: "True RollingOut", v1beta1.BundleControlPlaneReady: "Unknown NotVisible",
	})
	invalid := map[string]string{
		v1beta1.BundleReconciled: "False InvalidBundle", v1beta1.BundleReady: "False InvalidBundle", v1beta1.BundleStalled: "True InvalidBundle",
		v1beta1.BundleTunnelAvailable: "Unknown InvalidBundle", v1beta1.BundleSchedulerLeading: "Unknown InvalidBundle",
		v1beta1.BundleControlPlaneReady: "Unknown InvalidBundle", v1beta1.BundleProgressing: "False InvalidBundle",
	}
	l.patch(`{"spec": {"scheduler": {"replicas": 0}}}`)
	agents(0)
	says(0, invalid)

	// The scheduler and the tunnel are known while only an assignment is not valid.
	l.patch(`{"spec": {"scheduler": {"replicas": 2, "assignments": [{"schedulerName": "no-such-profile", "podSelector": {"matchLabels": {"a": "b"}}}]}}}`)
	agents(1)
	says(1, map[string]string{
		v1beta1.BundleReconciled: "False InvalidBundle", v1beta1.BundleTunnelAvailable: "True Available", v1beta1.BundleSchedulerLeading: "False NoLeader",
		v1beta1.BundleControlPlaneReady: "Unknown NotVisible",
	})
	agents(0)
	says(0, map[string]string{v1beta1.BundleReconciled: "False InvalidBundle", v1beta1.BundleTunnelAvailable: "False NotReady"})
	l.patch(`{"spec": {"scheduler": {"assignments": null}}}`)
	l.look()
	l.reconciled(v1beta1.ReasonAsWanted)
}
