// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const (
	// victims are the pods that preemption evicts, of a priority below all others.
	victims = "victim"
	urgent  = "urgent"

	// shutdown is how long an evicted pod takes to terminate, like a program that ends on SIGTERM.
	shutdown = time.Second
	// notice is how long both schedulers have to see objects that were created or removed.
	notice = 2 * time.Second
)

var (
	pool      = map[string]string{"pool": "fairlead"}
	poolTaint = corev1.Taint{Key: "pool", Value: "fairlead", Effect: corev1.TaintEffectNoSchedule}
)

// makeNodes makes ten nodes; a partition is the first five.
func (a arrangement) makeNodes(ctx context.Context, cp *controlPlane) error {
	return parallel(togetherNodes, func(i int) error {
		node := newNode(i, resource.MustParse(fmt.Sprint(togetherNodeCPU)))
		if a.partitioned && i < togetherNodes/2 {
			node.Labels["pool"], node.Spec.Taints = pool["pool"], []corev1.Taint{poolTaint}
		}
		_, err := cp.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		return err
	})
}

func makePriorities(ctx context.Context, client kubernetes.Interface) error {
	for name, value := range map[string]int32{victims: -10, urgent: 1000} {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		// The built-in classes, and with them the API, may come a moment later than the rest.
		if err := eventually(ctx, func() error {
			_, err := client.SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// pod is one of either scheduler's.
func (a arrangement) pod(prefix, scheduler string, i int) *corev1.Pod {
	pod := newPod(services, scheduler, prefix, i)
	pod.Labels = map[string]string{"app": prefix}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(togetherPodCPU, resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("1Gi"),
	}
	if a.partitioned && scheduler != corev1.DefaultSchedulerName {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: poolTaint.Key, Value: poolTaint.Value, Operator: corev1.TolerationOpEqual, Effect: poolTaint.Effect}}
	}
	if a.preemption && scheduler == corev1.DefaultSchedulerName {
		pod.Spec.PriorityClassName = urgent
	}
	return pod
}

// makePods makes both schedulers' pods, in turns.
func (a arrangement) makePods(ctx context.Context, client kubernetes.Interface) error {
	schedulers := []string{corev1.DefaultSchedulerName, v1alpha1.DefaultSpreadProfile}
	return parallel(2*togetherPods, func(i int) error {
		if a.alone && i%2 == 1 {
			return nil
		}
		_, err := client.CoreV1().Pods(namespace).Create(ctx, a.pod("round", schedulers[i%2], i), metav1.CreateOptions{})
		return err
	})
}

// fillWithVictims makes pods of kube-scheduler's that are bound already and leave no room.
func (a arrangement) fillWithVictims(ctx context.Context, client kubernetes.Interface) error {
	perNode := togetherNodeCPU / togetherPodCPU
	err := parallel(togetherNodes*perNode, func(i int) error {
		pod := a.pod(victims, corev1.DefaultSchedulerName, i)
		pod.Spec.PriorityClassName, pod.Spec.NodeName = victims, nodeName(i/perNode)
		_, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	time.Sleep(notice)
	return err
}

// waitUntilBothBind returns when both schedulers work: one of them has to win a Lease first.
func (a arrangement) waitUntilBothBind(ctx context.Context, cp *controlPlane) error {
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	bound, err := watchBindings(watching, cp.client)
	if err != nil {
		return err
	}
	for i, scheduler := range []string{corev1.DefaultSchedulerName, v1alpha1.DefaultSpreadProfile} {
		if _, err := cp.client.CoreV1().Pods(namespace).Create(ctx, a.pod("first", scheduler, i), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := bound.wait(ctx, 2, patience); err != nil {
		return err
	}
	return clean(ctx, cp.client)
}

// clean removes all pods.
func clean(ctx context.Context, client kubernetes.Interface) error {
	now := int64(0)
	pods := client.CoreV1().Pods(namespace)
	err := eventually(ctx, func() error {
		if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}); err != nil {
			return err
		}
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods are left", len(list.Items))
		}
		return err
	})
	time.Sleep(notice)
	return err
}

// kubelets end pods that are deleted, after a while.
type kubelets struct {
	mu    sync.Mutex
	ended map[string]bool
}

func startKubelets(ctx context.Context, client kubernetes.Interface) (*kubelets, error) {
	k := &kubelets{ended: map[string]bool{}}
	informer := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace)).Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) {
		if pod, ok := obj.(*corev1.Pod); ok && pod.DeletionTimestamp != nil && pod.Spec.NodeName != "" && k.first(pod) {
			go end(ctx, client, pod)
		}
	}}); err != nil {
		return nil, err
	}
	go informer.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, errors.Join(errors.New("watch pods"), ctx.Err())
	}
	return k, nil
}

func (k *kubelets) first(pod *corev1.Pod) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.ended[string(pod.UID)]
	k.ended[string(pod.UID)] = true
	return !known
}

// evicted is the number of pods that were given time to end.
func (k *kubelets) evicted() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.ended)
}

func end(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(shutdown):
	}
	now := int64(0)
	// It may be gone already: rounds end with all pods deleted.
	_ = client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
}
