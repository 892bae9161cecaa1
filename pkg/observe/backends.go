// SPDX-License-Identifier: Apache-2.0

package observe

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Webhook is one admission webhook.
type Webhook struct {
	// Owner is the configuration's kind and name, Name the webhook's.
	Owner, Name string
	Service     *ServiceRef
	CABundle    []byte
	// Blocking means that calls fail if the webhook does not answer.
	Blocking bool
	Rules    []admissionregistrationv1.RuleWithOperations
	// Exempt lists namespaces that its selector leaves out by name.
	Exempt []string
}

// Webhooks are all admission webhooks of the snapshot that call a Service.
func (s *Snapshot) Webhooks() []Webhook {
	var out []Webhook
	for _, c := range s.Mutating.Value {
		for _, w := range c.Webhooks {
			if w.ClientConfig.Service != nil {
				out = append(out, webhookOf("MutatingWebhookConfiguration "+c.Name, w.Name, w.ClientConfig, w.FailurePolicy, w.Rules, w.NamespaceSelector))
			}
		}
	}
	for _, c := range s.Validating.Value {
		for _, w := range c.Webhooks {
			if w.ClientConfig.Service != nil {
				out = append(out, webhookOf("ValidatingWebhookConfiguration "+c.Name, w.Name, w.ClientConfig, w.FailurePolicy, w.Rules, w.NamespaceSelector))
			}
		}
	}
	return out
}

func webhookOf(owner, name string, client admissionregistrationv1.WebhookClientConfig, policy *admissionregistrationv1.FailurePolicyType, rules []admissionregistrationv1.RuleWithOperations, selector *metav1.LabelSelector) Webhook {
	w := Webhook{
		Owner: owner, Name: name, CABundle: client.CABundle, Rules: rules,
		Service:  &ServiceRef{Namespace: client.Service.Namespace, Name: client.Service.Name, Port: ptr.Deref(client.Service.Port, 443)},
		Blocking: ptr.Deref(policy, admissionregistrationv1.Fail) == admissionregistrationv1.Fail,
	}
	if selector == nil {
		return w
	}
	for _, r := range selector.MatchExpressions {
		if r.Key == "kubernetes.io/metadata.name" && r.Operator == "NotIn" {
			w.Exempt = append(w.Exempt, r.Values...)
		}
	}
	return w
}
