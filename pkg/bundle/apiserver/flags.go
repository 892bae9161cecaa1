// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Server tells what else a kube-apiserver needs from the bundle. The zero value is one that
// kubeadm runs: kubeadm sets the front proxy's flags itself.
type Server struct {
	// KubeletCAFile is the CA of kubelets' serving certificates; empty leaves the flag out.
	KubeletCAFile string
	// FrontProxyDir is the directory with the front proxy's certificates; empty leaves its
	// flags out.
	FrontProxyDir string
}

// Flags returns every flag that the bundle sets on a kube-apiserver. Static Pods, kubeadm's
// configuration and the embedded control plane all take them from here: add a field of the
// bundle that becomes a flag of kube-apiserver to this function.
func Flags(b *v1alpha1.Bundle, s Server) []component.Flag {
	b = b.Defaulted()
	var flags []component.Flag
	if s.KubeletCAFile != "" {
		flags = append(flags, component.PathFlag(KubeletCAFlag, s.KubeletCAFile))
	}
	if ptr.Deref(b.Konnectivity.Enabled, true) {
		flags = append(flags, component.PathFlag(ConfigFlag, b.ControlPlane.EgressSelectorFile))
	}
	if s.FrontProxyDir != "" {
		flags = append(flags, frontProxyFlags(b, s.FrontProxyDir)...)
	}
	return append(flags, routingFlags(b)...)
}
