// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// assignments are the policies and bindings of the bundle's assignments.
func assignments(b *v1alpha1.Bundle) []component.Object {
	var objects []component.Object
	for i := range b.Scheduler.Assignments {
		name := fmt.Sprintf("%s-assign-%d", b.Scheduler.Name, i)
		objects = append(objects, assignmentPolicy(b, name, i), assignmentBinding(name))
	}
	return objects
}

// assignmentPolicy changes Pods when they are created: spec.schedulerName cannot be
// changed later. If the policy fails, the Pod stays with the default scheduler: it
// is better on the wrong nodes than Pending.
func assignmentPolicy(b *v1alpha1.Bundle, name string, i int) *admissionregistrationv1.MutatingAdmissionPolicy {
	a := &b.Scheduler.Assignments[i]
	order := orderVariables(b.Scheduler.Assignments[:i])
	return &admissionregistrationv1.MutatingAdmissionPolicy{
		TypeMeta:   admissionType("MutatingAdmissionPolicy"),
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy:      ptr.To(admissionregistrationv1.Ignore),
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: namespaceSelector(b, a), ObjectSelector: a.PodSelector,
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "names-default-scheduler", Expression: "object.spec.schedulerName == " + quote(corev1.DefaultSchedulerName)},
				// Static Pods' mirrors, for example, are on a node already.
				{Name: "not-bound", Expression: "!has(object.spec.nodeName) || object.spec.nodeName == ''"},
				// Each Pod of a DaemonSet requires one node by name. A profile of a partition
				// would leave the Pods for other nodes Pending for ever.
				{Name: "no-daemon", Expression: noDaemon},
			},
			Variables: order,
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: inOrder(order, patchExpression(b, a))},
			}},
		},
	}
}

// noDaemon is CEL for a Pod that no DaemonSet controls.
const noDaemon = `!has(object.metadata.ownerReferences) || ` +
	`!object.metadata.ownerReferences.exists(o, o.kind == 'DaemonSet' && o.apiVersion.startsWith('apps/') && has(o.controller) && o.controller)`

// inOrder leaves Pods to the assignments before this one, if there are any.
func inOrder(order []admissionregistrationv1.Variable, patch string) string {
	if len(order) == 0 {
		return patch
	}
	return "variables." + selectedBefore + " ? [] : " + patch
}

// patchExpression is CEL that makes a JSON patch.
func patchExpression(b *v1alpha1.Bundle, a *v1alpha1.Assignment) string {
	name := fmt.Sprintf(`[JSONPatch{op: "replace", path: "/spec/schedulerName", value: %s}]`, quote(a.SchedulerName))
	t := Toleration(b)
	if t == nil {
		return name
	}
	toleration := fmt.Sprintf(`Object.spec.tolerations{key: %s, operator: %s, value: %s, effect: %s}`,
		quote(t.Key), quote(string(t.Operator)), quote(t.Value), quote(string(t.Effect)))
	return name + fmt.Sprintf(` + (has(object.spec.tolerations) ? `+
		`[JSONPatch{op: "add", path: "/spec/tolerations/-", value: %[1]s}] : `+
		`[JSONPatch{op: "add", path: "/spec/tolerations", value: [%[1]s]}])`, toleration)
}

// namespaceSelector leaves out the namespaces that the second scheduler itself may
// depend on.
func namespaceSelector(b *v1alpha1.Bundle, a *v1alpha1.Assignment) *metav1.LabelSelector {
	selector := &metav1.LabelSelector{}
	if a.NamespaceSelector != nil {
		selector = a.NamespaceSelector.DeepCopy()
	}
	out := []string{metav1.NamespaceSystem}
	if b.Namespace != metav1.NamespaceSystem {
		out = append(out, b.Namespace)
	}
	selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: out,
	})
	return selector
}

func assignmentBinding(name string) *admissionregistrationv1.MutatingAdmissionPolicyBinding {
	return &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		TypeMeta:   admissionType("MutatingAdmissionPolicyBinding"),
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}
}

func admissionType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind}
}
