// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// installBundle applies the bundle's objects to the API server and returns
// their number. It omits workloads and the objects that only serve them:
// processes run instead, and a Deployment would create simulated Pods that do
// nothing.
//
// It also omits APIServices, and deletes those of an earlier run: their servers do not run
// yet. See [plan.startTunnelAPI], which passes them as further objects.
func (p *plan) installBundle(ctx context.Context, further ...component.Object) (int, error) {
	out, err := bundle.Render(p.bundle)
	if err != nil {
		return 0, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", p.AdminKubeconfig())
	if err != nil {
		return 0, fmt.Errorf("loading %s: %w", p.AdminKubeconfig(), err)
	}
	objects := slices.DeleteFunc(out.Objects, isWorkload)
	// This provider owns the cluster, so it also overwrites what a user has
	// changed in the bundle's objects.
	if p.state.Operator {
		err = p.installForOperator(ctx, config, objects, further)
	} else {
		_, err = install.Apply(ctx, config, append(objects, further...), install.Options{Party: install.Provider, Force: true})
	}
	if namespace := p.bundle.Scheduler.LeaderElection.LeaseNamespace; apierrors.IsNotFound(err) && namespace != p.bundle.Namespace {
		return 0, fmt.Errorf("scheduler.leaderElection.leaseNamespace: namespace %q does not exist in the new cluster: leave the field out, or set it to the bundle's namespace or kube-system: %w", namespace, err)
	}
	return len(objects) + len(further), err
}

func isWorkload(object component.Object) bool {
	switch object.(type) {
	case *appsv1.Deployment, *appsv1.DaemonSet, *policyv1.PodDisruptionBudget, *networkingv1.NetworkPolicy, *corev1.Pod, *corev1.Service, *apiregistrationv1.APIService:
		return true
	}
	return false
}
