// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

func replicaSet(name string, owner *appsv1.Deployment) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: owner.Namespace, Labels: schedulerPod("x").Labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
	}}
}

// TestFormerIdentity: a replica that is gone was made by a ReplicaSet of our Deployment. A replica of another
// Deployment with the documented name is not ours.
func TestFormerIdentity(t *testing.T) {
	now := time.Now()
	ours := deployment(secondName, 2, schedulerPod("x").Labels)
	ours.UID, ours.CreationTimestamp = "ours", metav1.NewTime(now.Add(-5*time.Minute))
	others := deployment(secondName, 2, schedulerPod("x").Labels)
	others.UID = "others"
	elsewhere := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "my-scheduler-5f7c-there", Namespace: "elsewhere"}}
	installed := []runtime.Object{ours, replicaSet("my-scheduler-5f7c", ours), replicaSet("my-scheduler-0ld0", ours), replicaSet("my-scheduler-aaaa", others), elsewhere}
	for name, tc := range map[string]struct {
		objects []runtime.Object
		holder  string
		ago     time.Duration
		want    bool
	}{
		"of today's template":           {installed, "my-scheduler-5f7c-abcde", time.Minute, true},
		"of a former template":          {installed, "my-scheduler-0ld0-abcde_1f", 0, true},
		"of no template of ours":        {installed, "my-scheduler-f0f0-abcde", time.Minute, false},
		"of another's ReplicaSet":       {installed, "my-scheduler-aaaa-abcde", time.Minute, false},
		"a pod in another namespace":    {installed, "my-scheduler-5f7c-there", time.Minute, false},
		"a host that begins like ours":  {installed, "my-scheduler-vm", time.Minute, false},
		"a longer name":                 {installed, "my-scheduler-5f7c-abcde-fghij", time.Minute, false},
		"before our Deployment":         {installed, "my-scheduler-f0f0-abcde", 6 * time.Minute, true},
		"elsewhere, before":             {installed, "my-scheduler-5f7c-there", 6 * time.Minute, false},
		"another host, before":          {installed, "control-plane", 6 * time.Minute, false},
		"without a Deployment":          {nil, "my-scheduler-node-1", time.Minute, true},
		"another, without a Deployment": {nil, "control-plane", time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewParts(fake.NewClientset(tc.objects...), names())
			got, err := p.FormerIdentity(t.Context(), tc.holder, now.Add(-tc.ago))
			if err != nil || got != tc.want {
				t.Errorf("FormerIdentity(%s) = %t, %v", tc.holder, got, err)
			}
		})
	}
}

// TestMadeBy: API servers cut generated names to a host name's length.
func TestMadeBy(t *testing.T) {
	long := "a-scheduler-with-a-very-long-name-that-takes-the-whole-label-0123456789"
	if !madeBy(long[:58]+"abcde", long) || madeBy(long[:58]+"abcd", long) || madeBy(long+"-abcde", long) {
		t.Error("a cut name is not known")
	}
}
