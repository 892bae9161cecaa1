// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// container is the one that runs a program; nil if the program is no Pod.
func (p Program) container() *corev1.Container {
	if p.Pod == nil || len(p.Pod.Spec.Containers) == 0 {
		return nil
	}
	for i := range p.Pod.Spec.Containers {
		if c := &p.Pod.Spec.Containers[i]; c.Name == p.Container.Name {
			return c
		}
	}
	return &p.Pod.Spec.Containers[0]
}

// MountOf is the volume of a program's Pod in which a file is, and the file's path in the volume; nil if it is in none.
func MountOf(p Program, file string) (volume *corev1.Volume, below string) {
	c := p.container()
	if c == nil {
		return nil, ""
	}
	file = path.Clean(file)
	var mount *corev1.VolumeMount
	longest := ""
	for i := range c.VolumeMounts {
		at := path.Clean(c.VolumeMounts[i].MountPath)
		if (file == at || strings.HasPrefix(file, strings.TrimSuffix(at, "/")+"/")) && len(at) > len(longest) {
			mount, longest = &c.VolumeMounts[i], at
		}
	}
	if mount == nil {
		return nil, ""
	}
	for i := range p.Pod.Spec.Volumes {
		if v := &p.Pod.Spec.Volumes[i]; v.Name == mount.Name {
			return v, path.Join(mount.SubPath, strings.TrimPrefix(strings.TrimPrefix(file, longest), "/"))
		}
	}
	return nil, ""
}

// OnHost is where a file of a program is on its node: containers mount paths of the node elsewhere. A file that is in no such volume keeps its path.
func OnHost(p Program, file string) string {
	if volume, below := MountOf(p, file); volume != nil && volume.HostPath != nil {
		return path.Join(volume.HostPath.Path, below)
	}
	return file
}
