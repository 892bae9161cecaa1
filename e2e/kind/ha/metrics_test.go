// SPDX-License-Identifier: Apache-2.0

package ha_test

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// liveLeases counts the servers' Leases that have not expired.
func liveLeases(ctx context.Context, client kubernetes.Interface) (int, error) {
	list, err := client.CoordinationV1().Leases(v1alpha1.DefaultLeaseNamespace).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=konnectivity-server"})
	if err != nil {
		return 0, err
	}
	n := 0
	for _, l := range list.Items {
		if l.Spec.RenewTime != nil && l.Spec.LeaseDurationSeconds != nil &&
			time.Now().Before(l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second)) {
			n++
		}
	}
	return n, nil
}

// agentMetric reads a gauge of an agent.
func agentMetric(ctx context.Context, client kubernetes.Interface, pod, name string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	body, err := client.CoreV1().Pods(metav1.NamespaceSystem).ProxyGet("http", pod, "8134", "metrics", nil).DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	family, ok := families["konnectivity_network_proxy_agent_"+name]
	if !ok || len(family.GetMetric()) == 0 {
		return 0, fmt.Errorf("the agent has no metric %s", name)
	}
	return int(family.GetMetric()[0].GetGauge().GetValue()), nil
}
