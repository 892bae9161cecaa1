// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"path"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Names of kube-apiserver's volumes.
const (
	VolumeSocket = "konnectivity-uds"
	VolumeConfig = "konnectivity-egress-config"
)

// mount is a directory of the node, at the same path in kube-apiserver.
type mount struct {
	name, dir string
	kind      corev1.HostPathType
	readOnly  bool
}

// mounts are the directories that kube-apiserver needs: the directory of its
// egress selector configuration and that of the socket. They are directories
// because a mount of a file or socket keeps showing the old one after it is
// replaced.
func mounts(b *v1alpha1.Bundle) []mount {
	out := []mount{{
		name: VolumeConfig, dir: path.Dir(b.ControlPlane.EgressSelectorFile),
		// Not DirectoryOrCreate: an empty directory would only turn a clear error of
		// the kubelet into an exit of kube-apiserver.
		kind: corev1.HostPathDirectory, readOnly: true,
	}}
	if uds := b.Konnectivity.Transport.UDS; uds != nil {
		out = append(out, mount{
			name: VolumeSocket, dir: path.Dir(uds.Path), kind: corev1.HostPathDirectoryOrCreate,
		})
	}
	return out
}
