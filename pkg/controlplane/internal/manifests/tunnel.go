// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// APIServerFile returns the path of kube-apiserver's manifest.
func APIServerFile(b *v1alpha1.Bundle) string {
	return path.Join(b.ControlPlane.ManifestsDir, APIServer+".yaml")
}

// ServerFile returns the path of the Konnectivity server's manifest.
func ServerFile(b *v1alpha1.Bundle) string {
	return path.Join(b.ControlPlane.ManifestsDir, konnectivity.ServerName+".yaml")
}

// EgressSelector returns kube-apiserver's --egress-selector-config-file argument,
// or "" if there is none.
func EgressSelector(pod *corev1.Pod) string {
	i := APIServerIndex(pod)
	if i < 0 {
		return ""
	}
	c := pod.Spec.Containers[i]
	args := slices.Concat(c.Command, c.Args)
	at := slices.IndexFunc(args, func(a string) bool {
		return a == "--"+apiserver.ConfigFlag || strings.HasPrefix(a, "--"+apiserver.ConfigFlag+"=")
	})
	if at < 0 {
		return ""
	}
	return args[at]
}

// TunnelPart returns everything that the bundle needs in kube-apiserver's manifest,
// whether fairlead, kubeadm or a person added it.
func TunnelPart(pod *corev1.Pod, b *v1alpha1.Bundle) (Additions, error) {
	bare := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: APIServer, Command: []string{APIServer}}}}}
	patched, err := apiserver.PatchPod(bare, b)
	if err != nil {
		return Additions{}, err
	}
	add := Between(bare, patched)
	if i := APIServerIndex(pod); i >= 0 && slices.ContainsFunc(add.Flags, func(f string) bool { return slices.Contains(pod.Spec.Containers[i].Args, f) }) {
		add.List = "args"
	}
	return add, nil
}

// WithoutTunnel removes the tunnel from kube-apiserver's manifest, even if
// kubeadm or a person added it, because the file that the flag names is about to be
// removed. It keeps settings that are written in another way.
func WithoutTunnel(manifest []byte, b *v1alpha1.Bundle) ([]byte, error) {
	pod, err := Decode(manifest)
	if err != nil {
		return nil, err
	}
	add, err := TunnelPart(pod, b)
	if err != nil || !slices.Contains(add.Flags, EgressSelector(pod)) {
		return manifest, err
	}
	return Remove(manifest, add)
}
