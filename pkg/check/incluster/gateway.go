// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
)

// gatewayOf reaches one of the gateway's Pods by a forwarded port; it is nil if the bundle has no gateway.
func gatewayOf(cfg *rest.Config, client kubernetes.Interface, b *v1alpha1.Bundle) *check.Gateway {
	if !gateway.Enabled(b) {
		return nil
	}
	return &check.Gateway{
		Audience: b.Gateway.TokenAudiences[0], ServerName: gateway.ServerName(b), HasRules: b.Gateway.Rules != nil,
		Reach: func(ctx context.Context, use func(context.Context, string, []byte) error) error {
			pod, err := gatewayPod(ctx, client, b.Namespace)
			if err != nil {
				return err
			}
			ca, err := gatewayCA(ctx, client, b)
			if err != nil {
				return err
			}
			return check.Forward(ctx, cfg, client, pod, b.Gateway.Port, func(ctx context.Context, address string) error { return use(ctx, address, ca) })
		},
	}
}

// gatewayPod is one that is ready.
func gatewayPod(ctx context.Context, client kubernetes.Interface, namespace string) (*corev1.Pod, error) {
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selectorOf(gateway.Labels())})
	if err != nil {
		return nil, fmt.Errorf("look for the gateway's Pods: %w", err)
	}
	for i := range pods.Items {
		for _, c := range pods.Items[i].Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pods.Items[i].DeletionTimestamp == nil {
				return &pods.Items[i], nil
			}
		}
	}
	return nil, check.WithHint(fmt.Errorf("none of the gateway's %d Pods in %s is ready", len(pods.Items), namespace),
		"kubectl describe pods -n %s -l %s", namespace, selectorOf(gateway.Labels()))
}

// gatewayCA is in the Secret of the gateway's certificate; a static Pod's certificate is of the cluster's CA.
func gatewayCA(ctx context.Context, client kubernetes.Interface, b *v1alpha1.Bundle) ([]byte, error) {
	if gateway.IsStatic(b) {
		cm, err := client.CoreV1().ConfigMaps(b.Namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("read the cluster's CA: %w", err)
		}
		return []byte(cm.Data["ca.crt"]), nil
	}
	secret, err := client.CoreV1().Secrets(b.Namespace).Get(ctx, b.Gateway.CertificateSecret, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the gateway's certificate: %w", err)
	}
	if ca := secret.Data[component.CAKey]; len(ca) > 0 {
		return ca, nil
	}
	return nil, check.WithHint(errors.New("the Secret of the gateway's certificate has no "+component.CAKey), "add the CA that signed it")
}
