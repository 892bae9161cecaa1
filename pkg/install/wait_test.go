// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// TestDeploymentState checks that a rollout is complete only when each replica is new and ready, as for kubectl rollout status.
func TestDeploymentState(t *testing.T) {
	exceeded := []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Reason: "ProgressDeadlineExceeded", Message: "too slow"}}
	for state, tc := range map[string]struct {
		status       appsv1.DeploymentStatus
		done, failed bool
	}{
		notSeen:                         {status: appsv1.DeploymentStatus{ObservedGeneration: 1, Conditions: exceeded}},
		"1 of 2 replicas are updated":   {status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 2}},
		"1 old replicas have not ended": {status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 2, AvailableReplicas: 3}},
		"1 of 2 replicas are ready":     {status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 1}},
		"0 of 2 replicas are ready":     {status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, Conditions: exceeded}, failed: true},
		progress.Count(2, "replica"):    {status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2, Conditions: exceeded}, done: true},
	} {
		w := deploymentState(workload{}, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2)}, Status: tc.status})
		if w.state != state || w.done != tc.done || w.failed != tc.failed {
			t.Errorf("state %q, done %v, failed %v, want %q, %v, %v", w.state, w.done, w.failed, state, tc.done, tc.failed)
		}
	}
}

// TestDaemonSetState is the same for DaemonSets.
func TestDaemonSetState(t *testing.T) {
	for state, tc := range map[string]struct {
		status appsv1.DaemonSetStatus
		done   bool
	}{
		notSeen:                            {status: appsv1.DaemonSetStatus{ObservedGeneration: 1}},
		"1 of 2 nodes have an updated Pod": {status: appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 2, UpdatedNumberScheduled: 1, NumberAvailable: 2}},
		"1 of 2 nodes have a ready Pod":    {status: appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 2, UpdatedNumberScheduled: 2, NumberAvailable: 1}},
		"no node matches":                  {status: appsv1.DaemonSetStatus{ObservedGeneration: 2}, done: true},
		progress.Count(2, "node"):          {status: appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 2, UpdatedNumberScheduled: 2, NumberAvailable: 2}, done: true},
	} {
		if w := daemonSetState(workload{}, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: tc.status}); w.state != state || w.done != tc.done || w.failed {
			t.Errorf("%+v, want %q, done %v", w, state, tc.done)
		}
	}
}

// TestWaitRollout checks that the wait ends when the rollout is complete, and earlier when it has failed or cannot be read.
func TestWaitRollout(t *testing.T) {
	ref := Ref{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "kube-system", Name: "x"}
	deployment := func(status appsv1.DeploymentStatus) *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "x", Generation: 1},
			Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}},
			Status:     status,
		}
	}
	done := appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
	const later = 2 * time.Minute
	for name, tc := range map[string]struct {
		answer func(since time.Duration) (*appsv1.Deployment, error)
		after  time.Duration
		want   string // in the error; "" for none
	}{
		"complete after some time": {func(since time.Duration) (*appsv1.Deployment, error) {
			if since < later {
				return deployment(appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 1, UpdatedReplicas: 1}), nil
			}
			return deployment(done), nil
		}, later, ""},
		"API server gone for some time": {func(since time.Duration) (*appsv1.Deployment, error) {
			if since < later {
				return nil, errors.New("connection refused")
			}
			return deployment(done), nil
		}, later, ""},
		"failed": {func(time.Duration) (*appsv1.Deployment, error) {
			return deployment(appsv1.DeploymentStatus{ObservedGeneration: 1, Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentProgressing, Reason: "ProgressDeadlineExceeded", Message: "quota is used up"}}}), nil
		}, 0, "quota is used up"},
		"no right to read": {func(time.Duration) (*appsv1.Deployment, error) {
			return nil, apierrors.NewForbidden(appsv1.Resource("deployments"), "x", errors.New("no right"))
		}, 0, "it cannot be read"},
		"never": {func(time.Duration) (*appsv1.Deployment, error) { return deployment(appsv1.DeploymentStatus{}), nil }, DefaultTimeout, errTimeout.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kube, began := fake.NewClientset(), time.Now()
				kube.PrependReactor("get", "deployments", func(ktesting.Action) (bool, runtime.Object, error) {
					d, err := tc.answer(time.Since(began))
					return true, d, err
				})
				ctx, cancel := context.WithTimeoutCause(t.Context(), DefaultTimeout, errTimeout)
				defer cancel()
				_, err := (&client{kube: kube, timing: usual}).waitRollout(ctx, ref, progress.Silent)
				if took := time.Since(began); took < tc.after || took > tc.after+usual.poll {
					t.Errorf("ended after %v, want %v", took, tc.after)
				}
				var rollout *RolloutError
				if (tc.want == "") != (err == nil) || err != nil && (!errors.As(err, &rollout) || !strings.Contains(err.Error(), tc.want)) {
					t.Errorf("error %v, want %q", err, tc.want)
				}
			})
		})
	}
}

// TestAwaitBackend checks that an APIService is not created before its Service has a ready endpoint, and that one that exists does not wait.
func TestAwaitBackend(t *testing.T) {
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": apiServiceKind, "metadata": map[string]any{"name": "v1.x"},
		"spec": map[string]any{"service": map[string]any{"namespace": "n", "name": "s"}},
	}}
	created := change{Ref: RefOf(service), action: Created, want: service}
	exists := created
	exists.action, exists.live = Configured, service
	endpoint := func(ready bool) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s", Labels: map[string]string{discoveryv1.LabelServiceName: "s"}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errTimeout)
		defer cancel()
		c := &client{kube: fake.NewClientset(endpoint(false)), timing: usual}
		if err := c.awaitBackend(ctx, exists, progress.Silent); err != nil {
			t.Errorf("an APIService that exists: %v", err)
		}
		if err := c.awaitBackend(ctx, created, progress.Silent); !errors.Is(err, errTimeout) || !strings.Contains(err.Error(), "Service n/s has no ready endpoint") {
			t.Errorf("without a ready endpoint: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		const later = 30 * time.Second
		c, began := &client{kube: fake.NewClientset(endpoint(false)), timing: usual}, time.Now()
		time.AfterFunc(later, func() {
			if _, err := c.kube.DiscoveryV1().EndpointSlices("n").Update(t.Context(), endpoint(true), metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
		})
		if err := c.awaitBackend(t.Context(), created, progress.Silent); err != nil || time.Since(began) < later {
			t.Errorf("ended after %v: %v", time.Since(began), err)
		}
	})
}

// TestInventoryIsKept checks that an inventory is read as it was written, that one that another client has written is an error, and
// that nothing is left after its deletion.
func TestInventoryIsKept(t *testing.T) {
	c := &client{kube: fake.NewClientset(), party: Command}
	inv, err := c.readInventory(t.Context())
	if err != nil || len(inv.Objects) != 0 {
		t.Fatalf("an empty cluster: %+v, %v", inv, err)
	}
	entry := Entry{Ref: Ref{APIVersion: "v1", Kind: "Secret", Namespace: "n", Name: "s"}, UID: "1", Adopted: true}
	lease := Lease{Namespace: "n", Name: "l", HolderPrefix: "h-"}
	if err := c.writeInventory(t.Context(), inv.with([]Entry{entry}, []Lease{lease})); err != nil {
		t.Fatal(err)
	}
	inv, err = c.readInventory(t.Context())
	if got, found := inv.entry(entry.Ref); err != nil || !found || got != entry || len(inv.Leases) != 1 || inv.Leases[0] != lease {
		t.Errorf("read %+v, %v", inv, err)
	}
	if err := c.deleteInventory(t.Context(), inv); err != nil {
		t.Fatal(err)
	}
	if inv, err := c.readInventory(t.Context()); err != nil || len(inv.Objects) != 0 {
		t.Errorf("after the deletion: %+v, %v", inv, err)
	}
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: InventoryName}, Data: map[string]string{"ships": "3"}}
	if _, err := (&client{kube: fake.NewClientset(foreign), party: Command}).readInventory(t.Context()); !errors.Is(err, ErrInventory) {
		t.Errorf("an inventory of another owner: %v", err)
	}
}
