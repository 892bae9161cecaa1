// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// ErrConflict is returned for a kube-apiserver Pod that is already set up for
// something else. Nothing is changed then.
var ErrConflict = errors.New("kube-apiserver is already set up differently")

const apiServerContainer = "kube-apiserver"

// patchOperation is one operation of a JSON patch (RFC 6902).
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// StaticPodPatch is a JSON patch, in YAML, for kube-apiserver's static Pod as
// kubeadm writes it. Put it into kubeadm's patches directory under the name
// [StaticPodPatchFile]. It is a JSON patch because a strategic merge would
// replace the whole command. Use it with [KubeadmSANs], or [KubeadmPatch] alone.
func StaticPodPatch(b *v1alpha1.Bundle) ([]byte, error) {
	b = b.Defaulted()
	var patch []patchOperation
	add := func(path string, value any) {
		patch = append(patch, patchOperation{Op: "add", Path: path, Value: value})
	}
	for _, f := range Flags(b, Server{}) {
		add("/spec/containers/0/command/-", f.String())
	}
	for _, m := range mounts(b) {
		add("/spec/containers/0/volumeMounts/-", m.volumeMount())
		add("/spec/volumes/-", m.volume())
	}
	data, err := yaml.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode the static Pod patch: %w", err)
	}
	return data, nil
}

// StaticPodPatchFile is the name that kubeadm expects: target, suffix, kind.
const StaticPodPatchFile = "kube-apiserver0+json.yaml"

// PatchPod returns a copy of kube-apiserver's Pod that uses the tunnel. Applied
// twice it changes nothing more. It fails with [ErrConflict] if the Pod already
// has another egress selector configuration, or other volumes of the same names.
func PatchPod(pod *corev1.Pod, b *v1alpha1.Bundle) (*corev1.Pod, error) {
	b = b.Defaulted()
	out := pod.DeepCopy()
	i := slices.IndexFunc(out.Spec.Containers, func(c corev1.Container) bool { return c.Name == apiServerContainer })
	if i < 0 {
		return nil, fmt.Errorf("pod %s has no container %s: give kube-apiserver's static Pod", pod.Name, apiServerContainer)
	}
	c := &out.Spec.Containers[i]
	for _, f := range Flags(b, Server{}) {
		if err := addFlag(c, f); err != nil {
			return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
	}
	for _, m := range mounts(b) {
		if err := addMount(&out.Spec, c, m); err != nil {
			return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
	}
	return out, nil
}

// addFlag appends the flag to where the other flags are: kubeadm writes all into
// the command, others into the arguments.
func addFlag(c *corev1.Container, f component.Flag) error {
	prefix := "--" + f.Name
	for _, arg := range slices.Concat(c.Command, c.Args) {
		if arg == f.String() {
			return nil
		}
		if arg == prefix || strings.HasPrefix(arg, prefix+"=") {
			return fmt.Errorf("%w: it has %s where %s is needed: remove that flag, or set the bundle's field to it",
				ErrConflict, arg, f)
		}
	}
	if len(c.Args) > 0 || len(c.Command) == 0 {
		c.Args = append(c.Args, f.String())
		return nil
	}
	c.Command = append(c.Command, f.String())
	return nil
}

func addMount(spec *corev1.PodSpec, c *corev1.Container, m mount) error {
	if i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.name }); i < 0 {
		spec.Volumes = append(spec.Volumes, m.volume())
	} else if hp := spec.Volumes[i].HostPath; hp == nil || hp.Path != m.dir {
		return fmt.Errorf("%w: its volume %s is not hostPath %s: rename that volume", ErrConflict, m.name, m.dir)
	}
	for _, vm := range c.VolumeMounts {
		if vm.Name == m.name && vm.MountPath == m.dir && vm.ReadOnly == m.readOnly {
			return nil
		}
		if vm.Name == m.name || vm.MountPath == m.dir {
			return fmt.Errorf("%w: it mounts volume %s at %s, where volume %s is needed at %s: remove that mount",
				ErrConflict, vm.Name, vm.MountPath, m.name, m.dir)
		}
	}
	c.VolumeMounts = append(c.VolumeMounts, m.volumeMount())
	return nil
}

func (m mount) volume() corev1.Volume {
	return corev1.Volume{Name: m.name, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: m.dir, Type: ptr.To(m.kind)}}}
}

func (m mount) volumeMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: m.name, MountPath: m.dir, ReadOnly: m.readOnly}
}
