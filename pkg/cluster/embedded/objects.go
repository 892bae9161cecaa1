package embedded

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
)

// fieldManager owns the fields that Up applies.
const fieldManager = "fairlead"

// installBundle applies the bundle's objects to the API server and returns how
// many. Workloads, and what only serves them, are left out: processes take
// their place, and a Deployment would show simulated Pods that do nothing.
func (p *plan) installBundle(ctx context.Context) (int, error) {
	out, err := bundle.Render(p.bundle)
	if err != nil {
		return 0, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", p.AdminKubeconfig())
	if err != nil {
		return 0, fmt.Errorf("loading %s: %w", p.AdminKubeconfig(), err)
	}
	config.QPS = -1 // the default is slow enough to notice
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return 0, err
	}
	applied := 0
	for _, object := range out.Objects {
		if isWorkload(object) {
			continue
		}
		if err := apply(ctx, client, object); err != nil {
			if namespace := p.bundle.Scheduler.LeaderElection.LeaseNamespace; apierrors.IsNotFound(err) && object.GetNamespace() == namespace {
				return applied, fmt.Errorf("scheduler.leaderElection.leaseNamespace: namespace %q does not exist in the new cluster: leave the field out, or set it to the bundle's namespace or kube-system: %w", namespace, err)
			}
			return applied, err
		}
		applied++
	}
	return applied, nil
}

func isWorkload(object component.Object) bool {
	switch object.(type) {
	case *appsv1.Deployment, *appsv1.DaemonSet, *policyv1.PodDisruptionBudget, *corev1.Pod, *corev1.Service:
		return true
	}
	return false
}

// apply makes one object what the bundle says, by server-side apply.
func apply(ctx context.Context, client dynamic.Interface, object component.Object) error {
	u, err := bundle.Manifest(object)
	if err != nil {
		return err
	}
	gvk := u.GroupVersionKind()
	// The bundle's kinds all have regular plurals.
	resource, _ := meta.UnsafeGuessKindToResource(gvk)
	var target dynamic.ResourceInterface = client.Resource(resource)
	if u.GetNamespace() != "" {
		target = client.Resource(resource).Namespace(u.GetNamespace())
	}
	if _, err := target.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
		return fmt.Errorf("applying %s %s: %w", gvk.Kind, u.GetName(), err)
	}
	return nil
}
