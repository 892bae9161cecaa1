// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	namespace = "default"
	// nodeCPU and nodeMemory of every node; zones are three.
	nodeCPU, nodeMemory, zones = "32", "128Gi", 3
	// appLabel says whose a pod is.
	appLabel = "app"
	// serviceCount Services share the pods of workload services.
	serviceCount = 20
	// creators make objects at the same time.
	creators = 16
)

// podCount is how many pods a burst has: enough for some seconds, for batch at most one per node, and fewer where the
// nodes alone take long to make or a small cluster would be full.
func podCount(workload string, nodes int) int {
	most := 2000
	if nodes > 2000 {
		most = 1000
	}
	switch workload {
	case batch:
		return min(most, nodes)
	case mixed:
		return min(most, 6*nodes) // 20 of a node's 32 CPUs, so that all fit however they are placed
	}
	return min(most, 6*nodes)
}

func parallel(n int, do func(i int) error) error {
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	work := make(chan int)
	for range creators {
		wg.Go(func() {
			for i := range work {
				if err := do(i); err != nil {
					once.Do(func() { first = err })
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
	return first
}

func createNodes(ctx context.Context, client kubernetes.Interface, n int) error {
	return parallel(n, func(i int) error {
		_, err := client.CoreV1().Nodes().Create(ctx, newNode(i, resource.MustParse(nodeCPU)), metav1.CreateOptions{})
		return err
	})
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

func zoneName(i int) string { return fmt.Sprintf("zone-%d", i%zones) }

// zoneOf is the zone of a node by its name.
func zoneOf(node string) string {
	var i int
	if _, err := fmt.Sscanf(node, "node-%d", &i); err != nil {
		return node
	}
	return zoneName(i)
}

// newNode is a ready node without a kubelet.
func newNode(i int, cpu resource.Quantity) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU: cpu, corev1.ResourceMemory: resource.MustParse(nodeMemory), corev1.ResourcePods: resource.MustParse("110"),
	}
	name := nodeName(i)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelTopologyZone: zoneName(i),
		}},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func createServices(ctx context.Context, client kubernetes.Interface) error {
	return parallel(serviceCount, func(i int) error {
		name := fmt.Sprintf("service-%d", i)
		_, err := client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.ServiceSpec{
				Selector: map[string]string{appLabel: name}, Ports: []corev1.ServicePort{{Port: 80}}, ClusterIP: corev1.ClusterIPNone,
			},
		}, metav1.CreateOptions{})
		return err
	})
}

// sizes of the pods of workload mixed, in CPUs and GiB.
var sizes = [][2]int64{{1, 4}, {2, 8}, {4, 8}, {1, 2}, {8, 32}, {2, 4}, {3, 12}, {5, 10}}

func newPod(workload, profile, prefix string, i int) *corev1.Pod {
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	labels := map[string]string{appLabel: "none"}
	switch workload {
	case services:
		labels[appLabel] = fmt.Sprintf("service-%d", i%serviceCount)
	case batch:
		requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("30"), corev1.ResourceMemory: resource.MustParse("100Gi")}
	case mixed:
		size := sizes[i%len(sizes)]
		requests = corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewQuantity(size[0], resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(size[1]<<30, resource.BinarySI),
		}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%05d", prefix, i), Labels: labels},
		Spec: corev1.PodSpec{
			SchedulerName: profile,
			Containers:    []corev1.Container{{Name: "pause", Image: "pause", Resources: corev1.ResourceRequirements{Requests: requests}}},
		},
	}
}

func createBurst(ctx context.Context, client kubernetes.Interface, c contender, n int) error {
	return parallel(n, func(i int) error {
		_, err := client.CoreV1().Pods(namespace).Create(ctx, newPod(c.workload, c.profile, "burst", i), metav1.CreateOptions{})
		return err
	})
}

// openLoop creates pods at a fixed rate, whether or not they are bound, and returns the time at which each was
// created.
func openLoop(ctx context.Context, client kubernetes.Interface, c contender, prefix string, rate, seconds int) (map[string]time.Time, error) {
	asked := make(map[string]time.Time, rate*seconds)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	begin := time.Now()
	for i := range rate * seconds {
		at := begin.Add(time.Duration(i) * time.Second / time.Duration(rate))
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Until(at)):
		}
		pod := newPod(c.workload, c.profile, prefix, i)
		asked[pod.Name] = at
		wg.Go(func() {
			if _, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return asked, failed
}
