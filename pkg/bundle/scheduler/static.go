package scheduler

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// StaticComponent describes the second scheduler for a static Pod, which may use
// neither ServiceAccount nor ConfigMap (SCHED-26). The node must hold the
// configuration at [ConfigPath], made by [Configuration] with the same kubeconfig,
// and the kubeconfig itself, whose user needs the rights that [Objects] gives to
// the ServiceAccount.
func StaticComponent(b *v1alpha1.Bundle, kubeconfig string) component.Component {
	b = b.Defaulted()
	c := Component(b)
	c.ServiceAccount = ""
	// The kubeconfig is root's, with mode 0600.
	c.PodSecurity = component.RootPod()
	c.Volumes = []component.Volume{
		{Name: configVolume, HostPath: configDir(b), HostPathType: corev1.HostPathDirectory, MountPath: configDir(b), ReadOnly: true},
		{Name: "kubeconfig", HostPath: kubeconfig, HostPathType: corev1.HostPathFile, MountPath: kubeconfig, ReadOnly: true},
	}
	// Without a ServiceAccount there is no other identity for asking the API server
	// about callers of the health and metrics port.
	c.Flags = component.Merge(c.Flags, []component.Flag{
		component.PathFlag("authentication-kubeconfig", kubeconfig),
		component.PathFlag("authorization-kubeconfig", kubeconfig),
	})
	return c
}
