// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

func makeNodes(t *testing.T, client kubernetes.Interface, n int) {
	t.Helper()
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	for i := range n {
		name := fmt.Sprintf("node-%03d", i)
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
			Status: corev1.NodeStatus{Capacity: room, Allocatable: room,
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
		if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// makePods makes pods that name a profile and ask for CPUs.
func makePods(t *testing.T, client kubernetes.Interface, prefix, profile, cpu string, n int, change ...func(*corev1.Pod)) {
	t.Helper()
	token := false
	if _, err := client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // no controller makes it
		if _, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%03d", prefix, i), Labels: map[string]string{"app": prefix}},
			Spec: corev1.PodSpec{SchedulerName: profile, AutomountServiceAccountToken: &token, Containers: []corev1.Container{{
				Name: "pause", Image: "pause",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
			}}},
		}
		for _, c := range change {
			c(pod)
		}
		if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// waitBound returns the node of each pod of a prefix, once all have one.
func waitBound(t *testing.T, client kubernetes.Interface, prefix string, n int) map[string]string {
	t.Helper()
	nodes := map[string]string{}
	daemontest.Eventually(t, patience, func() error {
		list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + prefix})
		if err != nil {
			return err
		}
		for _, p := range list.Items {
			if p.Spec.NodeName != "" {
				nodes[p.Name] = p.Spec.NodeName
			}
		}
		if len(nodes) < n {
			return fmt.Errorf("%d of %d pods %s are bound", len(nodes), n, prefix)
		}
		return nil
	})
	return nodes
}
