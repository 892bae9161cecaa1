// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
	// Namespaces and Objects select what it is called for; nil for all.
	Namespaces, Objects *metav1.LabelSelector
}

// Sees reports whether the webhook is called for an object with these labels in a namespace with those.
func (w Webhook) Sees(namespace, object map[string]string) bool {
	return selected(w.Namespaces, namespace) && selected(w.Objects, object)
}

// selected is true for no selector, and for one that is not valid, of which it is not known what it selects.
func selected(selector *metav1.LabelSelector, set map[string]string) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err != nil || s.Matches(labels.Set(set))
}

// Webhooks are all admission webhooks of the snapshot that call a Service.
func (s *Snapshot) Webhooks() []Webhook {
	var out []Webhook
	for _, c := range s.Mutating.Value {
		for _, w := range c.Webhooks {
			if w.ClientConfig.Service != nil {
				out = append(out, webhookOf("MutatingWebhookConfiguration "+c.Name, w.Name, w.ClientConfig, w.FailurePolicy, w.Rules, w.NamespaceSelector, w.ObjectSelector))
			}
		}
	}
	for _, c := range s.Validating.Value {
		for _, w := range c.Webhooks {
			if w.ClientConfig.Service != nil {
				out = append(out, webhookOf("ValidatingWebhookConfiguration "+c.Name, w.Name, w.ClientConfig, w.FailurePolicy, w.Rules, w.NamespaceSelector, w.ObjectSelector))
			}
		}
	}
	return out
}

func webhookOf(owner, name string, client admissionregistrationv1.WebhookClientConfig, policy *admissionregistrationv1.FailurePolicyType, rules []admissionregistrationv1.RuleWithOperations, namespaces, objects *metav1.LabelSelector) Webhook {
	return Webhook{
		Owner: owner, Name: name, CABundle: client.CABundle, Rules: rules, Namespaces: namespaces, Objects: objects,
		Service:  &ServiceRef{Namespace: client.Service.Namespace, Name: client.Service.Name, Port: ptr.Deref(client.Service.Port, 443)},
		Blocking: ptr.Deref(policy, admissionregistrationv1.Fail) == admissionregistrationv1.Fail,
	}
}

// LabelsOf are those of a namespace. One that does not exist yet will have its name alone.
func (s *Snapshot) LabelsOf(namespace string) map[string]string {
	if set, ok := s.Namespaces.Value[namespace]; ok {
		return set
	}
	return map[string]string{corev1.LabelMetadataName: namespace}
}

// namespaces reads the labels of those of programs, of which there are few.
func (c *collector) namespaces(ctx context.Context) (map[string]map[string]string, error) {
	out := map[string]map[string]string{}
	for _, name := range c.spaces() {
		n, err := c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return out, fmt.Errorf("read namespace %s: %w", name, err)
		default:
			out[name] = n.Labels
		}
	}
	return out, nil
}
