// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// keepNeeded drops from an uninstallation the removal of files that the remaining
// manifests still need. Without those files kube-apiserver would not start, and the
// server would only restart in a loop. It returns what is left, with the reason.
func (p *planner) keepNeeded(apiServerPod *corev1.Pod) (left []string) {
	if arg := manifests.EgressSelector(apiServerPod); arg != "" {
		left = append(left, fmt.Sprintf("%s: %s, which is not as it was installed", p.manifestPath, arg))
	}
	left = append(left, p.KeepFor(p.manifestPath, manifests.MountsOf(apiServerPod))...)
	server := manifests.ServerFile(p.bundle)
	if data, err := p.Read(server); err == nil && !slices.ContainsFunc(p.Journal.Changes, func(c Change) bool { return c.Path == server }) {
		if pod, err := manifests.Decode(data); err == nil {
			left = append(left, p.KeepFor(server, slices.Concat(manifests.MountsOf(pod), manifests.NamedBy(pod)))...)
		}
	}
	named := manifests.NamedBy(apiServerPod)
	for _, c := range p.Journal.Changes {
		if c.Remove && slices.Contains(named, c.Path) {
			p.Fail(fmt.Errorf("%s still refers to %s, but the entry was edited after the installation, and kube-apiserver does not start without that file: "+
				"remove the entry from the manifest, then run the command again", p.manifestPath, c.Path))
		}
	}
	return left
}

// notInstalled returns the bundle's files that existed before the installation.
func (p *planner) notInstalled() (left []string) {
	for _, name := range []string{manifests.ServerFile(p.bundle), p.bundle.Konnectivity.Server.Kubeconfig, p.bundle.ControlPlane.EgressSelectorFile} {
		if p.HasFile(name) && p.state.File(name) == nil {
			left = append(left, name+": it was there before the installation")
		}
	}
	return left
}

// egressNow returns the egress selector argument in kube-apiserver's current
// manifest.
func egressNow(h nodefs.Host, manifest string) string {
	data, err := h.Read(manifest)
	if err != nil {
		return ""
	}
	pod, err := manifests.Decode(data)
	if err != nil {
		return ""
	}
	return manifests.EgressSelector(pod)
}
