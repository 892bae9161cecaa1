// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validatePartition(partition *Partition, p *field.Path) field.ErrorList {
	if partition == nil {
		return nil
	}
	var errs field.ErrorList
	if len(partition.NodeLabels) == 0 {
		errs = append(errs, field.Required(p.Child("nodeLabels"), "name the labels of the scheduler's nodes, such as {pool: batch}, or remove the partition"))
	}
	errs = append(errs, metav1validation.ValidateLabels(partition.NodeLabels, p.Child("nodeLabels"))...)
	taint := partition.Taint
	if taint == nil {
		return errs
	}
	at := p.Child("taint")
	errs = append(errs, metav1validation.ValidateLabelName(taint.Key, at.Child("key"))...)
	errs = append(errs, invalidFor(at.Child("value"), taint.Value, validation.IsValidLabelValue(taint.Value))...)
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}
	switch {
	case taint.Effect == corev1.TaintEffectPreferNoSchedule:
		errs = append(errs, field.Invalid(at.Child("effect"), taint.Effect,
			"other schedulers may still place their Pods there, so the nodes would be no partition; use NoSchedule"))
	case !slices.Contains(effects, taint.Effect):
		errs = append(errs, field.NotSupported(at.Child("effect"), taint.Effect, effects))
	}
	return errs
}

// ValidateAssigned checks that the assignments of a bundle name these profiles.
func ValidateAssigned(b *Bundle, names []string) field.ErrorList {
	var errs field.ErrorList
	for i := range b.Scheduler.Assignments {
		errs = append(errs, assigned(&b.Scheduler, i, names, field.NewPath("spec", "scheduler", "assignments"))...)
	}
	return errs
}

func assigned(s *Scheduler, i int, names []string, p *field.Path) field.ErrorList {
	if name := s.Assignments[i].SchedulerName; !slices.Contains(names, name) {
		return field.ErrorList{field.NotSupported(p.Index(i).Child("schedulerName"), name, names)}
	}
	return nil
}

func validateAssignments(s *Scheduler, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, a := range s.Assignments {
		at := p.Index(i)
		if !s.Open {
			errs = append(errs, assigned(s, i, s.ProfileNames(), p)...)
		}
		if empty(a.NamespaceSelector) && empty(a.PodSelector) {
			errs = append(errs, field.Required(at.Child("namespaceSelector"),
				"select namespaces or Pods: without a selector every Pod of the cluster would wait for this scheduler"))
		}
		var options metav1validation.LabelSelectorValidationOptions
		errs = append(errs, metav1validation.ValidateLabelSelector(a.NamespaceSelector, options, at.Child("namespaceSelector"))...)
		errs = append(errs, metav1validation.ValidateLabelSelector(a.PodSelector, options, at.Child("podSelector"))...)
	}
	return errs
}

func empty(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
}
