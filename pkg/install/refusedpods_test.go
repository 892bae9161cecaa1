// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// TestRefusedForGood: waiting ends before the time limit if admission refuses Pods for a
// reason that lasts, and the API server says so now; it goes on for all that may heal,
// and for a failure that a user has fixed since.
func TestRefusedForGood(t *testing.T) {
	const quota = `pods "x-1" is forbidden: failed quota: q: must specify limits.cpu for: c`
	const security = `pods "x-1" is forbidden: violates PodSecurity "restricted:latest": hostNetwork`
	for name, tc := range map[string]struct {
		condition, now string
		want           error
	}{
		"quota that wants limits":      {quota, quota, errRefused},
		"Pod Security":                 {security, security, errRefused},
		"quota that is used up":        {`pods "x-1" is forbidden: exceeded quota: q, requested: pods=1`, `exceeded quota: q, requested: pods=1`, errTimeout},
		"account that comes":           {`error looking up service account kube-system/x: serviceaccount "x" not found`, `serviceaccount "x" not found`, errTimeout},
		"mended since":                 {quota, "", errTimeout},
		"mended, now something passes": {quota, "exceeded quota: q", errTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			kube := fake.NewClientset(&appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "x", Generation: 1},
				Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}},
				Status: appsv1.DeploymentStatus{ObservedGeneration: 1, Conditions: []appsv1.DeploymentCondition{
					{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: tc.condition}}},
			})
			kube.PrependReactor("create", "pods", func(action ktesting.Action) (bool, runtime.Object, error) {
				if o := action.(ktesting.CreateActionImpl).CreateOptions; len(o.DryRun) != 1 {
					t.Errorf("a Pod was created: %+v", o)
				}
				if tc.now == "" {
					return true, &corev1.Pod{}, nil
				}
				return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New(tc.now))
			})
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), DefaultTimeout, errTimeout)
				defer cancel()
				_, err := (&client{kube: kube, timing: usual}).waitRollout(ctx, Ref{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "kube-system", Name: "x"}, progress.Silent)
				if !errors.Is(err, tc.want) {
					t.Errorf("error %v, want %v", err, tc.want)
				}
			})
		})
	}
}
