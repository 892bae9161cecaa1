// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	config "github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// held says why the second scheduler has to keep its configuration: it runs with a SchedulerProfile that is not valid any
// more, and without it the Pods that name it would stay Pending. It is "" if nothing keeps the configuration from
// being changed. names are those of the profiles that the scheduler has then.
func held(ctx context.Context, c client.Reader, wanted *config.Bundle, profiles []v1beta1.SchedulerProfile, verdicts map[string]verdict) (why string, names []string, err error) {
	invalid := slices.DeleteFunc(slices.Clone(profiles), func(p v1beta1.SchedulerProfile) bool {
		return verdicts[p.Name].reason != v1beta1.ReasonInvalid || slices.Contains(wanted.Scheduler.ProfileNames(), p.Spec.SchedulerName)
	})
	if len(invalid) == 0 || !ptr.Deref(wanted.Scheduler.Enabled, true) {
		return "", wanted.Scheduler.ProfileNames(), nil
	}
	running, err := runningProfiles(ctx, c, wanted)
	if err != nil {
		return "", nil, err
	}
	for _, p := range invalid {
		if slices.Contains(running, p.Spec.SchedulerName) {
			return fmt.Sprintf("the second scheduler keeps its configuration, because SchedulerProfile %s in it is not valid any more: %s: correct the profile, or delete it",
				p.Name, verdicts[p.Name].message), running, nil
		}
	}
	return "", wanted.Scheduler.ProfileNames(), nil
}

// runningProfiles are the names of the profiles that the second scheduler in the cluster has; none if there is no scheduler.
func runningProfiles(ctx context.Context, c client.Reader, wanted *config.Bundle) ([]string, error) {
	key := client.ObjectKey{Namespace: wanted.Namespace, Name: wanted.Scheduler.Name}
	if err := c.Get(ctx, key, &appsv1.Deployment{}); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	cm := &corev1.ConfigMap{}
	key.Name = scheduler.ConfigMapName(wanted)
	if err := c.Get(ctx, key, cm); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return scheduler.ProfileNamesIn(wanted, cm)
}

// withoutConfiguration leaves out what has the second scheduler's configuration, and returns what it has left out.
func withoutConfiguration(wanted *config.Bundle, objects []component.Object) (others []component.Object, left []install.Ref) {
	for _, o := range objects {
		_, isConfig := o.(*corev1.ConfigMap)
		_, isDeployment := o.(*appsv1.Deployment)
		if isConfig && o.GetName() == scheduler.ConfigMapName(wanted) || isDeployment && o.GetName() == wanted.Scheduler.Name {
			left = append(left, install.RefTo(o))
			continue
		}
		others = append(others, o)
	}
	return others, left
}
