// SPDX-License-Identifier: Apache-2.0

package install

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
)

// TestCausesOfOwnPods: what is wrong with the Pods of a TunnelPool does not explain why the bundle's agents are not ready, and
// the other way round.
func TestCausesOfOwnPods(t *testing.T) {
	own, ofPool := map[string]string{"k8s-app": "konnectivity-agent"}, map[string]string{"k8s-app": "konnectivity-agent", konnectivity.PoolLabel: "edge"}
	pod := func(name string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system", Labels: labels},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no room"}}},
		}
	}
	c := &client{kube: fake.NewClientset(pod("bundles", own), pod("pools", ofPool))}
	for want, labels := range map[string]map[string]string{"bundles": own, "pools": ofPool} {
		causes := c.podCauses(t.Context(), workload{
			ref:      Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "kube-system", Name: "x"},
			selector: &metav1.LabelSelector{MatchLabels: labels}, template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		})
		if len(causes) != 1 || !strings.Contains(causes[0], "Pod "+want+" ") {
			t.Errorf("%s: %q", want, causes)
		}
	}
}
