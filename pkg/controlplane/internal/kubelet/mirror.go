// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// Mirror is the mirror Pod of a static Pod: what the API shows of it.
type Mirror struct {
	nodefs.Host
	// Client connects to the API server. If it is nil, Err holds the reason.
	Client kubernetes.Interface
	Err    error
	// Dir is the directory of static Pods' manifests.
	Dir string
	// Namespace and Pod are those in the manifest, and Node is the node's name.
	Namespace, Pod, Node string
}

// Get returns the mirror Pod.
func (m Mirror) Get(ctx context.Context) (*corev1.Pod, error) {
	if m.Client == nil {
		return nil, m.Err
	}
	return m.Client.CoreV1().Pods(m.Namespace).Get(ctx, m.Pod+"-"+m.Node, metav1.GetOptions{})
}

// Reason returns why a container of the static Pod waits, such as
// ImagePullBackOff, as far as the API shows it. It ignores a mirror Pod of an earlier
// manifest.
func (m Mirror) Reason(ctx context.Context) string {
	pod, err := m.Get(ctx)
	if err != nil || !m.current(pod) {
		return ""
	}
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" {
			return strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		}
	}
	return ""
}

// Wait waits until the API shows the Pod with the flags of its manifest. If the kubelet is late by
// more than patience, Wait deletes the mirror Pod, which the kubelet then recreates at once.
func (m Mirror) Wait(ctx context.Context, poll Poll, patience time.Duration) error {
	start, deleted := time.Now(), types.UID("")
	return poll.Until(ctx, 0, func(ctx context.Context) error {
		pod, err := m.Get(ctx)
		if err != nil || m.current(pod) {
			return err
		}
		if time.Since(start) >= patience && pod.UID != deleted {
			deleted = pod.UID
			if err := m.remove(ctx, pod); err != nil {
				poll.Progress.Detail("%v", err)
			}
		}
		return errors.New("the API still shows the old one")
	})
}

// current reports whether the mirror Pod has the programs of the manifest on disk: the
// same images, and the same flags.
func (m Mirror) current(mirror *corev1.Pod) bool {
	data, err := m.Read(path.Join(m.Dir, m.Pod+".yaml"))
	if err != nil {
		return true // there is nothing to compare with
	}
	pod, err := manifests.Decode(data)
	if err != nil {
		return true
	}
	return slices.EqualFunc(pod.Spec.Containers, mirror.Spec.Containers, func(a, b corev1.Container) bool {
		return a.Name == b.Name && a.Image == b.Image && slices.Equal(a.Command, b.Command) && slices.Equal(a.Args, b.Args)
	})
}

func (m Mirror) remove(ctx context.Context, pod *corev1.Pod) error {
	options := metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	err := m.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
