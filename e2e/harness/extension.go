// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/json"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// RegisterWebhook makes the test server a validating webhook for ConfigMaps of its namespace. ca is that of
// its certificate.
func (c *Cluster) RegisterWebhook(ctx context.Context, ca []byte) (remove func(context.Context) error, err error) {
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e.fairlead.dev"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "server.e2e.fairlead.dev",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				CABundle: ca,
				Service:  &admissionregistrationv1.ServiceReference{Namespace: Namespace, Name: ServerName, Path: ptr.To("/validate"), Port: ptr.To[int32](443)},
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: Namespace}},
			FailurePolicy:           ptr.To(admissionregistrationv1.Fail),
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	hooks := c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err = hooks.Create(ctx, hook, metav1.CreateOptions{})
	return func(ctx context.Context) error { return hooks.Delete(ctx, hook.Name, metav1.DeleteOptions{}) }, err
}

// Whoami is the path of the aggregated API that answers with the headers of the request.
const Whoami = "/apis/" + ExtensionGroup + "/v1/whoami"

// RegisterAPI makes the test server the extension API server of ExtensionGroup. ca is that of its certificate.
func (c *Cluster) RegisterAPI(ctx context.Context, ca []byte) (remove func(context.Context) error, err error) {
	object, err := json.Marshal(map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1." + ExtensionGroup},
		"spec": map[string]any{
			"group": ExtensionGroup, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15, "caBundle": ca,
			"service": map[string]any{"namespace": Namespace, "name": ServerName, "port": 443},
		},
	})
	if err != nil {
		return nil, err
	}
	const path = "/apis/apiregistration.k8s.io/v1/apiservices"
	rest := c.Client.CoreV1().RESTClient()
	err = rest.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(object).Do(ctx).Error()
	return func(ctx context.Context) error {
		return rest.Delete().AbsPath(path, "v1."+ExtensionGroup).Do(ctx).Error()
	}, err
}
