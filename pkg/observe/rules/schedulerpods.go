// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// ignoredAfter is for how long no scheduler may look at a Pod. Schedulers take milliseconds, a failover seconds.
const ignoredAfter = 2 * time.Minute

func ignoredPods(s *observe.Snapshot) ([]Finding, error) {
	pods, err := s.Pending.Get()
	if err != nil {
		return nil, err
	}
	if s.Bound.Err != nil {
		return nil, s.Bound.Err
	}
	served := append(scheduler.ProfileNames(s.Bundle), v1alpha1.DefaultSchedulerProfile)
	if _, err := second(s); err != nil {
		served = []string{v1alpha1.DefaultSchedulerProfile}
	}
	count, example := map[string]int{}, map[string]string{}
	for i := range pods {
		p := &pods[i]
		name := p.Spec.SchedulerName
		if slices.Contains(served, name) || s.Bound.Value[name] > 0 || lookedAt(p) || observe.ReadAt(s, s.Pending).Sub(p.CreationTimestamp.Time) < ignoredAfter {
			continue
		}
		count[name]++
		example[name] = p.Namespace + "/" + p.Name
	}
	var out []Finding
	for _, name := range sorted(count) {
		namespace, pod, _ := strings.Cut(example[name], "/")
		out = append(out, Finding{Object: "schedulerName " + name, Message: fmt.Sprintf("no scheduler has looked at %d Pods that name it, for example %s", count[name], example[name]), Warning: true,
			Fix: fmt.Sprintf("kubectl -n %s get pod %s -o jsonpath='{.spec.schedulerName}'   # correct the name, or start that scheduler", namespace, pod)})
	}
	return out, nil
}

func lookedAt(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" || p.DeletionTimestamp != nil || len(p.Spec.SchedulingGates) > 0 ||
		slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
}

// waitingLong is when a Pod of ours has waited long enough to say so.
const waitingLong = 10 * time.Minute

func waiting(s *observe.Snapshot) ([]Finding, error) {
	if _, err := second(s); err != nil {
		return nil, err
	}
	pods, err := s.Pending.Get()
	if err != nil {
		return nil, err
	}
	names := scheduler.ProfileNames(s.Bundle)
	n, example := 0, (*corev1.Pod)(nil)
	for i := range pods {
		p := &pods[i]
		if slices.Contains(names, p.Spec.SchedulerName) && len(p.Spec.SchedulingGates) == 0 && p.DeletionTimestamp == nil && observe.ReadAt(s, s.Pending).Sub(p.CreationTimestamp.Time) > waitingLong {
			n++
			example = p
		}
	}
	if n == 0 {
		return nil, nil
	}
	return warn("Pod "+example.Namespace+"/"+example.Name, fmt.Sprintf("%s of the second scheduler waiting for more than %s", progress.Count(n, "Pod"), waitingLong),
		fmt.Sprintf("kubectl -n %s describe pod %s", example.Namespace, example.Name)), nil
}
