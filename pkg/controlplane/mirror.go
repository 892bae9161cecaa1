// SPDX-License-Identifier: Apache-2.0

package controlplane

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

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

const (
	// mirrorPatience is how long the kubelet may take to update a mirror Pod by
	// itself. Its first attempt failed because the API server was unavailable, and it
	// retries within a minute.
	mirrorPatience = 5 * time.Second
	// mirrorLimit bounds the whole wait for the mirror Pod: only what the API shows
	// depends on it.
	mirrorLimit = 2 * time.Minute
)

// mirror returns the mirror Pod of a static Pod.
func (n *node) mirror(ctx context.Context, pod string) (*corev1.Pod, error) {
	if n.client == nil {
		return nil, n.clientErr
	}
	return n.client.CoreV1().Pods(n.namespaceOf(pod)).Get(ctx, pod+"-"+n.ownName, metav1.GetOptions{})
}

// mirrorReason returns why a container of a static Pod waits, such as
// ImagePullBackOff, as far as the API shows it. It ignores a mirror Pod of an earlier
// manifest.
func (n *node) mirrorReason(ctx context.Context, name string) string {
	pod, err := n.mirror(ctx, name)
	if err != nil || !n.shows(pod, path.Join(n.bundle.ControlPlane.ManifestsDir, name+".yaml")) {
		return ""
	}
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" {
			return strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		}
	}
	return ""
}

// waitMirror waits until the API shows kube-apiserver with the flags of its manifest:
// "fairlead install" and "fairlead uninstall" read there whether the tunnel is in use.
// If the kubelet is late, waitMirror deletes the mirror Pod, which the kubelet then
// recreates at once. A missing mirror Pod is not an error.
func (n *node) waitMirror(ctx context.Context) {
	_ = progress.Step(n.opts.Progress, "Waiting until the API shows the new kube-apiserver", func() (string, error) {
		start, deleted := time.Now(), types.UID("")
		o := n.opts
		o.Timeout = n.opts.mirrorLimit
		err := o.await(ctx, 0, func(ctx context.Context) error {
			pod, err := n.mirror(ctx, apiServer)
			if err != nil || n.shows(pod, n.manifestPath) {
				return err
			}
			if time.Since(start) >= n.opts.mirrorPatience && pod.UID != deleted {
				deleted = pod.UID
				n.deleteMirror(ctx, pod)
			}
			return errors.New("the API still shows the old one")
		})
		if err != nil && ctx.Err() == nil {
			n.opts.Notef("%v: until the kubelet renews Pod %s/%s-%s, \"fairlead install\" and \"fairlead uninstall\" judge by the old one",
				err, metav1.NamespaceSystem, apiServer, n.ownName)
		}
		return "", nil
	})
}

// shows reports whether a mirror Pod has the programs of the manifest on disk: the
// same images, and the same flags.
func (n *node) shows(mirror *corev1.Pod, manifest string) bool {
	data, err := n.Read(manifest)
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

func (n *node) deleteMirror(ctx context.Context, pod *corev1.Pod) {
	options := metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	err := n.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		n.opts.Progress.Detail("%v", err)
	}
}
