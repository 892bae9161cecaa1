// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
)

// slot is what each pod asks for: a node's 32 CPUs are 80 of them.
var slot = resource.MustParse("400m")

// wanted is the priority of pods that a leader binds first.
const wanted = "wanted"

// TestSchedulerNeverOverbooks fills nodes to the last CPU across changes of the leader: no CPU is assigned twice.
// Without FailoverBarrier some is, or the test would prove nothing.
func TestSchedulerNeverOverbooks(t *testing.T) {
	t.Parallel()
	t.Run("with FailoverBarrier", func(t *testing.T) {
		t.Parallel()
		c := newTight(t, "")
		for range 2 {
			if over := c.resume(t); len(over) > 0 {
				t.Errorf("a leader that was paused and resumed overbooked %v", over)
			}
		}
		if over := c.killedAmidst(t, func(leader string) string { return leader }); len(over) > 0 {
			t.Errorf("overbooked after the leader was killed: %v", over)
		}
		for _, program := range []string{"kube-apiserver", "etcd"} {
			if over := c.killedAmidst(t, func(string) string { return program }); len(over) > 0 {
				t.Errorf("overbooked after %s was killed and started: %v", program, over)
			}
		}
		c.nothingTwice()
		c.must("down", "-q")
	})
	t.Run("without it", func(t *testing.T) {
		t.Parallel()
		c := newTight(t, ", plugins: {failoverBarrier: {enabled: false}}")
		for range 5 {
			if over := c.resume(t); len(over) > 0 {
				t.Logf("overbooked as expected: %v", over)
				c.must("down", "-q")
				return
			}
		}
		t.Error("nothing was overbooked in five attempts: the test cannot fail")
	})
}

// newTight brings up a cluster with two replicas and the priority wanted.
func newTight(t *testing.T, plugins string) *ha {
	t.Helper()
	h := newHome(t)
	file := filepath.Join(h.Dir, "bundle.yaml")
	// A killed leader loses the events that it still holds, and a pod that is bound twice is found by its two
	// events.
	bundle := bundletest.File("scheduler: {builtInProfiles: {spread: {}}, extraArgs: [{name: max-event-delay, value: 0s}]" + plugins + "}")
	if err := os.WriteFile(file, []byte(bundle), 0o600); err != nil {
		t.Fatal(err)
	}
	h.must("up", "-f", file, "-q")
	config := h.restConfig("dev")
	config.QPS = -1 // the room is to be full before the clocks of Leases run out
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c := &ha{home: h, t: t, client: client}
	if _, err := c.client.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: wanted}, Value: 1000, PreemptionPolicy: ptr.To(corev1.PreemptNever),
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return c
}

// resume pauses the leader, lets the other replica fill the nodes, and resumes the first. The resumed replica
// first sees the pods that did not fit: they were created before those that filled the nodes.
func (c *ha) resume(t *testing.T) (overbooked []string) {
	t.Helper()
	c.empty(t)
	leader, _ := c.roles(t)
	pid := c.status("dev").find(t, leader).PID
	room := c.room(t)
	c.signal(pid, syscall.SIGSTOP)
	c.fill(t, "left-over", "", room/2)
	c.fill(t, "fits", wanted, room)
	waitFor(t, "the other replica to fill the room", func() bool { return c.bound(t) == room })
	c.signal(pid, syscall.SIGCONT)
	waitFor(t, "the replica that was resumed to exit", func() bool { return c.status("dev").find(t, leader).PID != pid })
	return c.overbooked(t)
}

// killedAmidst kills the program that which returns, while the leader fills the nodes.
func (c *ha) killedAmidst(t *testing.T, which func(leader string) string) (overbooked []string) {
	t.Helper()
	c.empty(t)
	leader, _ := c.roles(t)
	room := c.room(t)
	var filling sync.WaitGroup
	filling.Go(func() { c.fill(t, "burst", "", room+room/2) })
	waitFor(t, "some pods to be bound", func() bool { return c.bound(t) > room/4 })
	c.kill(which(leader))
	filling.Wait()
	waitFor(t, "the room to be full", func() bool { return c.bound(t) >= room })
	c.roles(t)
	return c.overbooked(t)
}

// fill makes pods, each of one slot, and tries again where the API server does not answer.
func (c *ha) fill(t *testing.T, name, priority string, count int) {
	t.Helper()
	c.n++
	for i := range count {
		pod := haPod(fmt.Sprintf("%s-%d-%d", name, c.n, i))
		pod.Labels = map[string]string{"tight": "true"}
		pod.Spec.PriorityClassName = priority
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = slot
		testutil.Eventually(t, time.Minute, func() error {
			_, err := c.client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
			if err == nil || apierrors.IsAlreadyExists(err) {
				return nil
			}
			return fmt.Errorf("make pod %s: %w", pod.Name, err)
		})
	}
}

// empty deletes what fill made.
func (c *ha) empty(t *testing.T) {
	t.Helper()
	tight := metav1.ListOptions{LabelSelector: "tight=true"}
	pods := c.client.CoreV1().Pods("default")
	if err := pods.DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, tight); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "pods to be gone", func() bool {
		list, err := pods.List(t.Context(), tight)
		return err == nil && len(list.Items) == 0
	})
}

// bound counts the pods that have got a slot; -1 while the API server does not answer.
func (c *ha) bound(t *testing.T) int {
	t.Helper()
	list, err := c.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "tight=true", FieldSelector: "spec.nodeName!="})
	if err != nil {
		return -1
	}
	return len(list.Items)
}

// free is the CPU that no pod has asked for, by node.
func (c *ha) free(t *testing.T) map[string]*resource.Quantity {
	t.Helper()
	nodes, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	free := map[string]*resource.Quantity{}
	for _, n := range nodes.Items {
		free[n.Name] = ptr.To(n.Status.Allocatable[corev1.ResourceCPU].DeepCopy())
	}
	pods, err := c.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		for _, container := range p.Spec.Containers {
			free[p.Spec.NodeName].Sub(container.Resources.Requests[corev1.ResourceCPU])
		}
	}
	return free
}

// room returns the number of free slots.
func (c *ha) room(t *testing.T) int {
	t.Helper()
	slots := 0
	for _, free := range c.free(t) {
		slots += int(free.MilliValue() / slot.MilliValue())
	}
	return slots
}

// overbooked returns the nodes whose pods request more than the nodes have.
func (c *ha) overbooked(t *testing.T) []string {
	t.Helper()
	var list []string
	for node, free := range c.free(t) {
		if free.Sign() < 0 {
			list = append(list, fmt.Sprintf("%s by %s CPUs", node, resource.NewMilliQuantity(-free.MilliValue(), resource.DecimalSI)))
		}
	}
	return list
}
