// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// TestWebhookSelectors proves that a webhook for Pods can keep agents away only if its selectors take the agents' namespace and Pods, in whatever
// way they say so: before an installation and after it.
func TestWebhookSelectors(t *testing.T) {
	only1 := func(key string, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}}}
	}
	not := func(key string, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: values}}}
	}
	const name = "kubernetes.io/metadata.name"
	for what, tc := range map[string]struct {
		namespaces, objects *metav1.LabelSelector
		labels              map[string]string
		want                rules.Status
	}{
		"all":                       {nil, nil, nil, rules.Warning},
		"Istio's":                   {&metav1.LabelSelector{MatchLabels: map[string]string{"istio-injection": "enabled"}}, nil, nil, rules.OK},
		"Istio's, and it is on":     {&metav1.LabelSelector{MatchLabels: map[string]string{"istio-injection": "enabled"}}, nil, map[string]string{"istio-injection": "enabled"}, rules.Warning},
		"not by name":               {not(name, "kube-system"), nil, nil, rules.OK},
		"not another":               {not(name, "shop"), nil, nil, rules.Warning},
		"one by name":               {only1(name, "shop"), nil, nil, rules.OK},
		"this one by name":          {only1(name, "shop", "kube-system"), nil, nil, rules.Warning},
		"not by a label, no label":  {not("admission", "off"), nil, nil, rules.Warning},
		"not by a label, has it":    {not("admission", "off"), nil, map[string]string{"admission": "off"}, rules.OK},
		"Pods of others":            {nil, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "shop"}}, nil, rules.OK},
		"Pods of agents":            {nil, &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "konnectivity-agent"}}, nil, rules.Warning},
		"all Pods but those agents": {nil, not("k8s-app", "konnectivity-agent"), nil, rules.OK},
	} {
		for _, before := range []bool{false, true} {
			w := healthy(t)
			labels := map[string]string{name: "kube-system"}
			for k, v := range tc.labels {
				labels[k] = v
			}
			w.Namespaces = observe.Known(map[string]map[string]string{"kube-system": labels})
			hook := admissionregistrationv1.MutatingWebhook{Name: "x", ClientConfig: w.Validating.Value[0].Webhooks[0].ClientConfig, Rules: podRules(), NamespaceSelector: tc.namespaces, ObjectSelector: tc.objects}
			w.Mutating = observe.Known([]admissionregistrationv1.MutatingWebhookConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: "injector"}, Webhooks: []admissionregistrationv1.MutatingWebhook{hook}}})
			id := "FL-EXT-006"
			if before {
				w.Programs.Value, id = nil, "FL-PRE-011"
			}
			if r := rules.Judge(w.Snapshot, rules.Options{Before: before, Only: []string{id}}).Checks[0]; r.Status != tc.want {
				t.Errorf("%s: %s %+v, want %s", what, id, r, tc.want)
			}
		}
	}
}
