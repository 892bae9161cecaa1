// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// mirrorOf is the mirror Pod of a manifest.
func mirrorOf(t *testing.T, root, uid string) *corev1.Pod {
	t.Helper()
	data, err := nodefs.Host{Root: root}.Read(apiServerFile)
	if err != nil {
		t.Fatal(err)
	}
	pod, err := manifests.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	pod.Name, pod.UID = apiServer+"-node-1", types.UID(uid)
	return pod
}

// mirroredOptions are for a node whose API shows kube-apiserver's Pod.
func mirroredOptions(t *testing.T, root string) (Options, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(mirrorOf(t, root, "old"))
	o := testOptions(root)
	o.client, o.poll = client, time.Millisecond
	o.mirrorPatience, o.mirrorLimit = 10*time.Millisecond, time.Minute
	return o, client
}

func (o Options) egressInAPI(t *testing.T) bool {
	t.Helper()
	pod, err := o.client.CoreV1().Pods("kube-system").Get(t.Context(), apiServer+"-node-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(strings.Join(pod.Spec.Containers[0].Command, " "), "egress-selector-config-file")
}

// TestMirrorFollows: when install and uninstall end, the API shows kube-apiserver as
// it is, though the kubelet renews its mirror Pod only when that is deleted.
func TestMirrorFollows(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	o, client := mirroredOptions(t, root)
	client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		fresh := mirrorOf(t, root, "new")
		return true, nil, client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), fresh, "kube-system")
	})
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if !o.egressInAPI(t) {
		t.Error("after install the API shows the kube-apiserver from before")
	}
	if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), mirrorOf(t, root, "old"), "kube-system"); err != nil {
		t.Fatal(err)
	}
	if _, err := Uninstall(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if o.egressInAPI(t) {
		t.Error("after uninstall the API shows the kube-apiserver from before")
	}
}

// TestMirrorNeverFollows: it is waited for a while, and then said.
func TestMirrorNeverFollows(t *testing.T) {
	t.Parallel()
	root, gone := testNode(t), testNode(t)
	inBubble(t, func(t *testing.T) { mirrorNeverFollows(t, root, gone) })
}

func mirrorNeverFollows(t *testing.T, root, gone string) {
	t.Helper()
	o, client := mirroredOptions(t, root)
	deleted := 0
	client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { deleted++; return true, nil, nil })
	o.mirrorLimit = 200 * time.Millisecond
	notes := told(&o)
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(notes.String(), "still shows the old one") || deleted != 1 {
		t.Errorf("deleted %d times; said:\n%s", deleted, notes)
	}
	o = testOptions(gone)
	o.client = fake.NewClientset()
	o.mirrorLimit = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := Install(ctx, o); err != nil {
		t.Errorf("where the API shows no such Pod: %v", err)
	}
}

// TestReasonOfEarlierManifest: a Pod that the API still shows though its manifest is
// another one by now is no reason for anything.
func TestReasonOfEarlierManifest(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	pod := mirrorOf(t, root, "old")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}}}
	o := testOptions(root)
	o.client = fake.NewClientset(pod)
	n := newNode(o.defaulted())
	n.connect()
	if got := n.mirror(apiServer).Reason(t.Context()); got != "ErrImagePull: no such image" {
		t.Errorf("the reason is %q", got)
	}
	replaceIn(t, nodefs.Host{Root: root}, apiServerFile, "image: registry.k8s.io/kube-apiserver:", "image: registry.example.com/kube-apiserver:")
	if got := n.mirror(apiServer).Reason(t.Context()); got != "" {
		t.Errorf("the reason of the manifest from before is given: %q", got)
	}
}
