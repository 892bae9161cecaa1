// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/components"
)

func TestVersions(t *testing.T) {
	for server, want := range map[string]struct{ scheduler, tunnel bool }{
		"v1.30.1": {false, false}, "v1.31.0": {false, true}, "v1.35.9": {false, true}, "v1.36.0": {true, true},
		"v1.37.2": {true, true}, "v1.38.0": {false, false}, "v2.36.0": {false, false}, "v1.36.3+k3s1": {true, true},
	} {
		for _, image := range []string{"x/fairlead-scheduler:v1", ""} {
			ok := want.tunnel
			if image != "" {
				ok = want.scheduler
			}
			f := versionFinding(version.MustParseGeneric(server), "v1.36.3", image)
			if (f == nil) != ok {
				t.Errorf("%s, scheduler %q: %+v", server, image, f)
			}
			if f != nil && !strings.Contains(f.Message, strings.Split(server, "+")[0]) {
				t.Errorf("%s is not named: %s", server, f.Message)
			}
		}
	}
}

// TestOperatorVersion: an API server that would drop parts of the definitions, or that this release does not
// know, gets no operator.
func TestOperatorVersion(t *testing.T) {
	for server, ok := range map[string]bool{
		"v1.30.9": false, "v1.31.0": true, "v1.36.3+k3s1": true, "v1.37.0": true, "v1.38.0": false, "v2.36.0": false, "unknown": false,
	} {
		kube := fake.NewClientset()
		kube.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &apiversion.Info{GitVersion: server}
		f, err := (&client{kube: kube}).findOperatorVersion()
		if err != nil || (f == nil) != ok || f != nil && (f.ID != FindingVersion || f.Warning || !strings.Contains(f.Message, server)) {
			t.Errorf("%s: %+v, %v", server, f, err)
		}
	}
}

// TestImageVersion checks that the preflight compares the version of the scheduler's
// image, not of the release that installs it.
func TestImageVersion(t *testing.T) {
	ours := components.KubernetesVersion()
	at := func(minors int) string { // a version this many minor versions above ours
		v := version.MustParseGeneric(ours)
		return fmt.Sprintf("v%d.%d.1", v.Major(), int(v.Minor())+minors)
	}
	stock := "registry.example/kube-scheduler:"
	for name, tc := range map[string]struct {
		image, server string
		want          string
		warning       bool
	}{
		"default":            {v1alpha1.DefaultSchedulerImage, at(0), "", false},
		"default, old":       {v1alpha1.DefaultSchedulerImage, at(-1), "upgrade the control plane first", false},
		"stock":              {stock + at(0), at(0), "", false},
		"stock, old":         {stock + at(-1), at(-1), "", false},
		"stock, one behind":  {stock + at(-1), at(0), "", false},
		"stock, two behind":  {stock + at(-2), at(0), "set scheduler.image", false},
		"stock, newer":       {stock + at(2), at(0), "upgrade the control plane first", false},
		"stock by digest":    {stock + at(1) + "@sha256:" + strings.Repeat("0", 64), at(0), "upgrade the control plane first", false},
		"stock, which":       {stock + "latest", at(0), "tag the image with its version", true},
		"one's own, tag 9.9": {"registry.example/scheduler:v9.9.9", at(0), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			kube := fake.NewClientset()
			kube.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &apiversion.Info{GitVersion: tc.server}
			b := &v1alpha1.Bundle{}
			b.Scheduler.Image = tc.image
			f, err := (&client{kube: kube}).findVersion(t.Context(), b.Defaulted())
			switch {
			case err != nil:
				t.Fatal(err)
			case tc.want == "" && f != nil:
				t.Errorf("found %+v", f)
			case tc.want == "":
			case f == nil || f.Warning != tc.warning || !strings.Contains(f.Hint, tc.want) || !strings.Contains(f.Message, tc.image):
				t.Errorf("found %+v, want a hint with %q", f, tc.want)
			}
		})
	}
}

func apiServerPod(args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver-a", Namespace: "kube-system", Labels: map[string]string{"component": "kube-apiserver"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Command: append([]string{"kube-apiserver"}, args...)}}},
	}
}

func named(p *corev1.Pod, name string) *corev1.Pod {
	p.Name = name
	return p
}

func node(runtime string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{ContainerRuntimeVersion: runtime}}}
}

func lease(holder string, age time.Duration) *coordinationv1.Lease {
	renewed := metav1.NewMicroTime(time.Now().Add(-age))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "my-scheduler", Namespace: "kube-system"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed, LeaseDurationSeconds: ptr.To[int32](12)},
	}
}

// TestFindings checks that every finding is reported where it applies and nowhere else,
// including another scheduler that holds the Lease and a kube-apiserver without an
// egress selector.
func TestFindings(t *testing.T) {
	for name, tc := range map[string]struct {
		objects []runtime.Object
		off     bool
		want    string
	}{
		"all is well":        {[]runtime.Object{node("containerd://2.1"), apiServerPod("--egress-selector-config-file=/x")}, false, ""},
		"no nodes":           {nil, false, FindingNoNodes},
		"simulated":          {[]runtime.Object{node("kwok://simulated")}, false, FindingSimulated},
		"no egress selector": {[]runtime.Object{node("c"), apiServerPod()}, false, FindingEgress},
		"no tunnel wanted":   {[]runtime.Object{node("c"), apiServerPod()}, true, ""},
		"count is 1 of 3": {[]runtime.Object{node("c"), apiServerPod("--egress-selector-config-file=/x"),
			named(apiServerPod("--egress-selector-config-file=/x"), "b"), named(apiServerPod("--egress-selector-config-file=/x"), "c")}, false, FindingCount},
		"count without a tunnel":     {[]runtime.Object{node("c"), apiServerPod(), named(apiServerPod(), "b")}, true, ""},
		"another scheduler":          {[]runtime.Object{node("c"), lease("control-plane_1", time.Second)}, false, FindingLease},
		"another scheduler has gone": {[]runtime.Object{node("c"), lease("control-plane_1", time.Minute)}, false, ""},
		"our own scheduler":          {[]runtime.Object{node("c"), lease("my-scheduler-5d9-abc_1", time.Second)}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := (&v1alpha1.Bundle{}).Defaulted()
			b.Konnectivity.Enabled = ptr.To(!tc.off)
			c := &client{kube: fake.NewClientset(tc.objects...)}
			var found []string
			for _, look := range []func() (*Finding, error){
				func() (*Finding, error) { return c.findNodes(t.Context(), b) },
				func() (*Finding, error) { return c.findEgress(t.Context(), b) },
				func() (*Finding, error) { return c.findCount(t.Context(), b) },
				func() (*Finding, error) { return c.findLease(t.Context(), b) },
			} {
				if f, _ := look(); f != nil { // a missing Lease is an error
					found = append(found, f.ID)
				}
			}
			if got := strings.Join(found, " "); got != tc.want {
				t.Errorf("found %q, want %q", got, tc.want)
			}
		})
	}
}

// TestPartition: if no node is in the partition, no Pod would be scheduled. Nodes that
// do not match it are worth a warning.
func TestPartition(t *testing.T) {
	labeled := func(taints ...corev1.Taint) *corev1.Node {
		n := node("c")
		n.Name, n.Labels, n.Spec.Taints = "p", map[string]string{"pool": "batch", "zone": "a"}, taints
		return n
	}
	taint := corev1.Taint{Key: "pool", Value: "batch", Effect: corev1.TaintEffectNoSchedule}
	for name, tc := range map[string]struct {
		partition *v1alpha1.Partition
		nodes     []runtime.Object
		want      string
		warning   bool
	}{
		"none wanted":  {nil, []runtime.Object{node("c")}, "", false},
		"no nodes yet": {&v1alpha1.Partition{NodeLabels: map[string]string{"pool": "batch"}}, nil, "", false},
		"no such node": {&v1alpha1.Partition{NodeLabels: map[string]string{"pool": "batch"}}, []runtime.Object{node("c")}, "no node has the labels pool=batch", false},
		"other value":  {&v1alpha1.Partition{NodeLabels: map[string]string{"pool": "x"}}, []runtime.Object{labeled()}, "no node has the labels pool=x", false},
		"there":        {&v1alpha1.Partition{NodeLabels: map[string]string{"pool": "batch"}}, []runtime.Object{node("c"), labeled()}, "", false},
		"not tainted":  {&v1alpha1.Partition{NodeLabels: map[string]string{"pool": "batch"}, Taint: &taint}, []runtime.Object{labeled()}, "nodes p are in", true},
		"tainted":      {&v1alpha1.Partition{NodeLabels: map[string]string{"pool": "batch"}, Taint: &taint}, []runtime.Object{labeled(taint)}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := &v1alpha1.Bundle{}
			b.Scheduler.Partition = tc.partition
			f, err := (&client{kube: fake.NewClientset(tc.nodes...)}).findPartition(t.Context(), b.Defaulted())
			switch {
			case err != nil:
				t.Fatal(err)
			case tc.want == "" && f != nil:
				t.Errorf("found %+v", f)
			case tc.want == "":
			case f == nil || f.Warning != tc.warning || !strings.HasPrefix(f.Message, tc.want) || f.Hint == "":
				t.Errorf("found %+v, want %q", f, tc.want)
			}
		})
	}
}

func TestRolloutStates(t *testing.T) {
	seen := func(s appsv1.DeploymentStatus) appsv1.DeploymentStatus { s.ObservedGeneration = 2; return s }
	exceeded := []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Reason: "ProgressDeadlineExceeded", Message: "too long"}}
	for name, tc := range map[string]struct {
		status       appsv1.DeploymentStatus
		state        string
		done, failed bool
	}{
		"not seen":  {appsv1.DeploymentStatus{ObservedGeneration: 1, UpdatedReplicas: 2, Replicas: 2, AvailableReplicas: 2}, notSeen, false, false},
		"updating":  {seen(appsv1.DeploymentStatus{UpdatedReplicas: 1, Replicas: 3, AvailableReplicas: 2}), "1 of 2 replicas are updated", false, false},
		"old ones":  {seen(appsv1.DeploymentStatus{UpdatedReplicas: 2, Replicas: 3, AvailableReplicas: 3}), "1 old replicas have not ended", false, false},
		"not ready": {seen(appsv1.DeploymentStatus{UpdatedReplicas: 2, Replicas: 2, AvailableReplicas: 1}), "1 of 2 replicas are ready", false, false},
		"deadline":  {seen(appsv1.DeploymentStatus{UpdatedReplicas: 2, Replicas: 2, Conditions: exceeded}), "0 of 2 replicas are ready", false, true},
		"done":      {seen(appsv1.DeploymentStatus{UpdatedReplicas: 2, Replicas: 2, AvailableReplicas: 2}), "2 replicas", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2)}, Status: tc.status}
			if w := deploymentState(workload{}, d); w.state != tc.state || w.done != tc.done || w.failed != tc.failed {
				t.Errorf("%+v", w)
			}
		})
	}
}

// TestPodCauses checks the causes that users see instead of "timed out".
func TestPodCauses(t *testing.T) {
	running := func(edit func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "kube-system", Labels: map[string]string{"app": "x"}}, Spec: corev1.PodSpec{NodeName: "n"}}
		edit(p)
		return p
	}
	status := func(s corev1.ContainerStatus) *corev1.Pod {
		return running(func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{s} })
	}
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want []string
	}{
		"image": {status(corev1.ContainerStatus{Image: "nowhere/x:1", State: waiting("ImagePullBackOff", "not found")}), []string{"node n", "ImagePullBackOff", "nowhere/x:1", "not found"}},
		"crash": {status(corev1.ContainerStatus{
			Name: "c", RestartCount: 3, State: waiting("CrashLoopBackOff", "back-off"),
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error"}},
		}), []string{"crashed 3 times", "exit code 2", "fake logs"}},
		"unschedulable": {running(func(p *corev1.Pod) {
			p.Spec.NodeName = ""
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"}}
		}), []string{"not scheduled", "0/3 nodes are available"}},
		"no scheduler": {running(func(p *corev1.Pod) { p.Spec.NodeName, p.Spec.SchedulerName = "", "my-scheduler" }), []string{`waits for scheduler "my-scheduler"`}},
		"probe":        {status(corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}), []string{"readiness probe"}},
		"well":         {status(corev1.ContainerStatus{Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := &client{kube: fake.NewClientset(tc.pod)}
			got := strings.Join(c.podCauses(t.Context(), workload{ref: Ref{Namespace: "kube-system"}, selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}), "; ")
			if tc.want == nil && got != "" {
				t.Errorf("got %q", got)
			}
			for _, part := range tc.want {
				if !strings.Contains(got, part) {
					t.Errorf("%q lacks %q", got, part)
				}
			}
		})
	}
}
