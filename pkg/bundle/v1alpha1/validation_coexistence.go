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

func validateAssignments(s *Scheduler, p *field.Path) field.ErrorList {
	names := s.ProfileNames()
	var errs field.ErrorList
	for i, a := range s.Assignments {
		at := p.Index(i)
		if !slices.Contains(names, a.SchedulerName) {
			errs = append(errs, field.NotSupported(at.Child("schedulerName"), a.SchedulerName, names))
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
