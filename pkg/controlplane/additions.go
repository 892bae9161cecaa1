// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
)

// egressSelector returns kube-apiserver's --egress-selector-config-file argument,
// or "" if there is none.
func egressSelector(pod *corev1.Pod) string {
	i := manifests.APIServerIndex(pod)
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

// tunnelPart returns everything that the bundle needs in kube-apiserver's manifest,
// whether fairlead, kubeadm or a person added it.
func tunnelPart(pod *corev1.Pod, b *v1alpha1.Bundle) (Additions, error) {
	bare := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: apiServer, Command: []string{apiServer}}}}}
	patched, err := apiserver.PatchPod(bare, b)
	if err != nil {
		return Additions{}, err
	}
	add := manifests.Between(bare, patched)
	if i := manifests.APIServerIndex(pod); i >= 0 && slices.ContainsFunc(add.Flags, func(f string) bool { return slices.Contains(pod.Spec.Containers[i].Args, f) }) {
		add.List = "args"
	}
	return add, nil
}

// withoutTunnelPart removes the tunnel from kube-apiserver's manifest, even if
// kubeadm or a person added it, because the file that the flag names is about to be
// removed. It keeps settings that are written in another way.
func withoutTunnelPart(manifest []byte, b *v1alpha1.Bundle) ([]byte, error) {
	pod, err := manifests.Decode(manifest)
	if err != nil {
		return nil, err
	}
	add, err := tunnelPart(pod, b)
	if err != nil || !slices.Contains(add.Flags, egressSelector(pod)) {
		return manifest, err
	}
	return manifests.Remove(manifest, add)
}

// keepNeeded drops from an uninstallation the removal of files that the remaining
// manifests still need. Without those files kube-apiserver would not start, and the
// server would only restart in a loop. It returns what is left, with the reason.
func (p *planner) keepNeeded(apiServerPod *corev1.Pod) (left []string) {
	if arg := egressSelector(apiServerPod); arg != "" {
		left = append(left, fmt.Sprintf("%s: %s, which is not as it was installed", p.manifestPath, arg))
	}
	left = append(left, p.KeepFor(p.manifestPath, manifests.MountsOf(apiServerPod))...)
	server := serverManifest(p.bundle)
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
	for _, name := range []string{serverManifest(p.bundle), p.bundle.Konnectivity.Server.Kubeconfig, p.bundle.ControlPlane.EgressSelectorFile} {
		if p.HasFile(name) && p.state.File(name) == nil {
			left = append(left, name+": it was there before the installation")
		}
	}
	return left
}

// egressNow returns the egress selector argument in kube-apiserver's current
// manifest.
func (n *node) egressNow() string {
	data, err := n.Read(n.manifestPath)
	if err != nil {
		return ""
	}
	pod, err := manifests.Decode(data)
	if err != nil {
		return ""
	}
	return egressSelector(pod)
}
