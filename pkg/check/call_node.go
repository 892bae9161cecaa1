// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// readyNode returns a node whose kubelet can be asked.
func (s *Scope) readyNode(ctx context.Context) (*corev1.Node, error) {
	nodes, err := s.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		for _, c := range nodes.Items[i].Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return &nodes.Items[i], nil
			}
		}
	}
	return nil, WithHint(errors.New("no node is Ready"), "kubectl get nodes")
}

// nodeHealthz asks a node's kubelet for its health through the API server.
func (s *Scope) nodeHealthz(ctx context.Context, node string) error {
	body, err := rawAnswer(ctx, s.Client.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("healthz"))
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(body)) != "ok" {
		return fmt.Errorf("the kubelet's /healthz returned %.100q", body)
	}
	return nil
}
