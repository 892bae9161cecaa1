// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Names of the variables in which CEL finds what selectors are about.
const (
	labelsOfPod       = "labelsOfPod"
	labelsOfNamespace = "labelsOfNamespace"
	selectedBefore    = "selectedBefore"
)

// orderVariables say whether an assignment before this one selects the Pod. The API
// server runs policies in an arbitrary order, which changes with each start. Without
// these variables the profile of a Pod that several assignments select would be
// random.
func orderVariables(before []v1alpha1.Assignment) []admissionregistrationv1.Variable {
	if len(before) == 0 {
		return nil
	}
	var selected []string
	for _, a := range before {
		all := append(selectorTerms(a.NamespaceSelector, labelsOfNamespace), selectorTerms(a.PodSelector, labelsOfPod)...)
		selected = append(selected, "("+strings.Join(all, " && ")+")")
	}
	labelsOf := func(object string) string {
		return fmt.Sprintf("has(%[1]s.metadata.labels) ? %[1]s.metadata.labels : {}", object)
	}
	return []admissionregistrationv1.Variable{
		{Name: labelsOfPod, Expression: labelsOf("object")},
		{Name: labelsOfNamespace, Expression: labelsOf("namespaceObject")},
		{Name: selectedBefore, Expression: strings.Join(selected, " || ")},
	}
}

// selectorTerms are a selector in CEL, over a variable with labels. All of them must
// hold.
func selectorTerms(s *metav1.LabelSelector, variable string) []string {
	if s == nil {
		return nil
	}
	labels := "variables." + variable
	has := func(key string) string { return fmt.Sprintf("%s in %s", quote(key), labels) }
	isIn := func(key string, values ...string) string {
		var list []string
		for _, v := range values {
			list = append(list, quote(v))
		}
		return fmt.Sprintf("%s && %s[%s] in [%s]", has(key), labels, quote(key), strings.Join(list, ", "))
	}
	var terms []string
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		terms = append(terms, isIn(key, s.MatchLabels[key]))
	}
	for _, r := range s.MatchExpressions {
		switch r.Operator {
		case metav1.LabelSelectorOpIn:
			terms = append(terms, isIn(r.Key, r.Values...))
		case metav1.LabelSelectorOpNotIn:
			terms = append(terms, "!("+isIn(r.Key, r.Values...)+")")
		case metav1.LabelSelectorOpExists:
			terms = append(terms, has(r.Key))
		case metav1.LabelSelectorOpDoesNotExist:
			terms = append(terms, "!("+has(r.Key)+")")
		}
	}
	return terms
}
