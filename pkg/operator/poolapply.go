// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// apply compares first: in the steady state the operator writes nothing. keep are workloads to leave
// alone. It returns a verdict on each workload, by name, that is not as its pool says. What blocks one workload keeps no
// other from being applied. What confirm does not confirm is not applied.
func (r *PoolReconciler) apply(ctx context.Context, b *v1beta1.Bundle, objects []component.Object, keep []install.Ref, confirm func(context.Context) error) (map[string]verdict, error) {
	verdicts := map[string]verdict{}
	for {
		rest := func(reason, message string) map[string]verdict {
			for _, o := range objects {
				verdicts[o.GetName()] = verdict{false, reason, message}
			}
			return verdicts
		}
		options := install.Options{Party: install.Pools, Timeout: r.timing.orUsual().apply, Keep: keep, Confirm: confirm}
		comparison, err := install.DiffOf(ctx, r.Config, options, objects)
		if err != nil {
			return rest(v1beta1.ReasonFailed, err.Error()), err
		}
		if b.Spec.ManagementPolicy == v1beta1.ManagementObserve {
			return drifted(comparison), nil
		}
		problems := comparison.Problems
		if len(problems) == 0 {
			if isAsWanted(comparison, false) {
				return verdicts, nil
			}
			_, err := install.Apply(ctx, r.Config, objects, options)
			blocked := (*install.BlockedError)(nil)
			switch {
			case err == nil:
				return verdicts, nil
			case isWaiting(ctx, err):
				return rest(v1beta1.ReasonWaiting, waiting), nil
			case !errors.As(err, &blocked):
				return rest(v1beta1.ReasonFailed, err.Error()), err
			}
			problems = blocked.Problems
		}
		found := byName(problems)
		left := slices.DeleteFunc(slices.Clone(objects), func(o component.Object) bool { return found[o.GetName()] != nil })
		again := len(left) < len(objects)
		for name, problems := range found {
			why := (&install.BlockedError{Problems: problems}).Error()
			if refs := poolRefs(problems[0].Object.Namespace, name); !slices.Contains(keep, refs[0]) {
				keep, again = append(keep, refs...), true
			}
			if slices.ContainsFunc(objects, func(o component.Object) bool { return o.GetName() == name }) {
				verdicts[name] = verdict{false, v1beta1.ReasonBlocked, why}
			} else { // its pool is gone
				ctrl.LoggerFrom(ctx).Info("The agents of a pool that is gone stay", "name", name, "why", why)
			}
		}
		if !again {
			return rest(v1beta1.ReasonBlocked, (&install.BlockedError{Problems: problems}).Error()), nil
		}
		objects = left
	}
}

// poolRefs are all workloads that may have the name of a pool's agents: a pool may be either, and change.
func poolRefs(namespace, name string) []install.Ref {
	refs := []install.Ref{{Kind: "Deployment"}, {Kind: "DaemonSet"}}
	for i := range refs {
		refs[i].APIVersion, refs[i].Namespace, refs[i].Name = appsv1.SchemeGroupVersion.String(), namespace, name
	}
	return refs
}

// byName are the problems of each workload.
func byName(problems []install.Problem) map[string][]install.Problem {
	out := map[string][]install.Problem{}
	for _, p := range problems {
		out[p.Object.Name] = append(out[p.Object.Name], p)
	}
	return out
}

// drifted are the verdicts while the operator only observes.
func drifted(c *install.Comparison) map[string]verdict {
	verdicts := map[string]verdict{}
	drift := verdict{false, v1beta1.ReasonDrift, "the agents differ, and managementPolicy of the Bundle is Observe: set Enforce"}
	for _, d := range c.Differences {
		verdicts[d.Name] = drift
	}
	for _, p := range c.Problems {
		verdicts[p.Object.Name] = drift
	}
	return verdicts
}
