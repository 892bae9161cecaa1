// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"fmt"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// nodeName names the simulated nodes node-1, node-2, ...
func nodeName(i int) string { return fmt.Sprintf("node-%d", i+1) }

// addNodes creates the missing Node objects, sets the address of all nodes, and
// waits until Pods can be scheduled to each.
func (p *plan) addNodes(ctx context.Context, client kubernetes.Interface) error {
	for i := range p.state.Nodes {
		if err := p.addNode(ctx, client, nodeName(i)); err != nil {
			return fmt.Errorf("adding %s: %w", nodeName(i), err)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not all of %d nodes are ready after %v; see %s", p.state.Nodes, startLimit, p.Log(progKwok)))
	defer cancel()
	return poll(ctx, 100*time.Millisecond, func() (bool, error) {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, fmt.Errorf("waiting for nodes: %w", err)
		}
		ready := 0
		for i := range list.Items {
			if usable(&list.Items[i]) {
				ready++
			}
		}
		return ready >= p.state.Nodes, nil
	})
}

// usable reports whether Pods can be scheduled to the node: it is ready and the
// taint of new nodes is gone.
func usable(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule {
			return false
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// addNode creates a node, or updates an existing one with the machine's current
// address.
func (p *plan) addNode(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().Nodes().Create(ctx, p.node(name), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		want := p.node(name).Status
		node.Status.Addresses, node.Status.DaemonEndpoints = want.Addresses, want.DaemonEndpoints
		_, err = client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
		return err
	})
}

// node returns a node of a common size. kwok keeps the fields that are set here
// and adds the rest.
func (p *plan) node(name string) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("32"),
		corev1.ResourceMemory:           resource.MustParse("128Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("500Gi"),
		corev1.ResourcePods:             resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH,
				"fairlead.dev/simulated": "true",
			},
		},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: p.state.HostIP}, {Type: corev1.NodeHostName, Address: name},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{
				KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(p.state.Ports[portNodeGate])},
			},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: p.state.KubernetesVersion, OperatingSystem: "linux", Architecture: runtime.GOARCH,
				OSImage: "simulated", ContainerRuntimeVersion: "kwok://simulated",
			},
		},
	}
}
