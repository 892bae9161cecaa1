package egress

import (
	"path"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/aggregation"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
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

// mounts are what kube-apiserver must see: the directory of its configuration
// file (KON-09) and that of the socket (KON-08). Directories, because a mount of
// a file or socket would keep showing one that has since been replaced.
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

// flags are all that the patches add. The front proxy's are not among them:
// kubeadm sets those itself (AGG-10).
func flags(b *v1alpha1.Bundle) []component.Flag {
	return append(APIServerFlags(b), aggregation.RoutingFlags(b)...)
}
