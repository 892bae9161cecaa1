// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// partition adds the partition's node affinity to all profiles. Validation has
// seen to it that none has one of its own.
func partition(p *v1alpha1.Partition, profiles []schedulerv1.KubeSchedulerProfile) {
	if p == nil {
		return
	}
	args := &schedulerv1.NodeAffinityArgs{AddedAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: requirements(p.NodeLabels)}},
		},
	}}
	for i := range profiles {
		if nodeAffinityConfig(&profiles[i]) < 0 {
			profiles[i].PluginConfig = append(profiles[i].PluginConfig, pluginConfig(names.NodeAffinity, args.DeepCopy()))
		}
	}
}

func requirements(labels map[string]string) []corev1.NodeSelectorRequirement {
	var list []corev1.NodeSelectorRequirement
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{labels[key]}})
	}
	return list
}

// nodeAffinityConfig is the index of a profile's own arguments for NodeAffinity, -1
// if it has none.
func nodeAffinityConfig(p *schedulerv1.KubeSchedulerProfile) int {
	return slices.IndexFunc(p.PluginConfig, func(c schedulerv1.PluginConfig) bool { return c.Name == names.NodeAffinity })
}

// validatePartition refuses profiles that a partition cannot be added to.
func validatePartition(b *v1alpha1.Bundle, p *field.Path) field.ErrorList {
	if b.Scheduler.Partition == nil {
		return nil
	}
	var errs field.ErrorList
	for i := range b.Scheduler.Profiles {
		if at := nodeAffinityConfig(&b.Scheduler.Profiles[i]); at >= 0 {
			errs = append(errs, field.Forbidden(p.Child("profiles").Index(i).Child("pluginConfig").Index(at),
				"the bundle's partition sets NodeAffinity's arguments in every profile; remove these, or the partition"))
		}
	}
	return errs
}

// Toleration is what the scheduler's Pods need for the partition's taint; nil
// without one.
func Toleration(b *v1alpha1.Bundle) *corev1.Toleration {
	if b.Scheduler.Partition == nil || b.Scheduler.Partition.Taint == nil {
		return nil
	}
	taint := b.Scheduler.Partition.Taint
	return &corev1.Toleration{Key: taint.Key, Operator: corev1.TolerationOpEqual, Value: taint.Value, Effect: taint.Effect}
}

// quote is a CEL string literal.
func quote(s string) string {
	data, err := json.Marshal(s)
	if err != nil { // strings always encode
		return fmt.Sprintf("%q", s)
	}
	return string(data)
}
