package controlplane

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/egress"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// mountsOf are the paths of the node that a Pod mounts.
func mountsOf(pod *corev1.Pod) []string {
	var out []string
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			out = append(out, path.Clean(v.HostPath.Path))
		}
	}
	return out
}

// namedBy are the paths that the flags of a Pod's programs name.
func namedBy(pod *corev1.Pod) []string {
	var out []string
	for _, c := range pod.Spec.Containers {
		for _, arg := range slices.Concat(c.Command, c.Args) {
			if _, value, ok := strings.Cut(arg, "="); ok {
				arg = value
			}
			if path.IsAbs(arg) {
				out = append(out, path.Clean(arg))
			}
		}
	}
	return out
}

// egressSelector is the argument that makes kube-apiserver use an egress selector,
// empty for none.
func egressSelector(pod *corev1.Pod) string {
	i := apiServerIndex(pod)
	if i < 0 {
		return ""
	}
	c := pod.Spec.Containers[i]
	args := slices.Concat(c.Command, c.Args)
	at := slices.IndexFunc(args, func(a string) bool {
		return a == "--"+egress.ConfigFlag || strings.HasPrefix(a, "--"+egress.ConfigFlag+"=")
	})
	if at < 0 {
		return ""
	}
	return args[at]
}

// tunnelPart is all that the bundle needs in kube-apiserver's manifest, whoever
// has put it there.
func tunnelPart(pod *corev1.Pod, b *v1alpha1.Bundle) (Additions, error) {
	bare := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: apiServer, Command: []string{apiServer}}}}}
	patched, err := egress.PatchPod(bare, b)
	if err != nil {
		return Additions{}, err
	}
	add := additions(bare, patched)
	if i := apiServerIndex(pod); i >= 0 && slices.ContainsFunc(add.Flags, func(f string) bool { return slices.Contains(pod.Spec.Containers[i].Args, f) }) {
		add.List = "args"
	}
	return add, nil
}

// withoutTunnelPart takes the tunnel out of kube-apiserver's manifest also where
// kubeadm has put it there, or a person: what the flag names is about to go. What
// is written in another way stays.
func withoutTunnelPart(manifest []byte, b *v1alpha1.Bundle) ([]byte, error) {
	pod, err := decodePod(manifest)
	if err != nil {
		return nil, err
	}
	add, err := tunnelPart(pod, b)
	if err != nil || !slices.Contains(add.Flags, egressSelector(pod)) {
		return manifest, err
	}
	return RemoveFromManifest(manifest, add)
}

// keepNeeded takes out of an uninstallation what the manifests that stay still
// need; kube-apiserver does not start, and the server does nothing but restart, if
// it goes. It returns what is left, with the reason.
func (p *planner) keepNeeded(apiServerPod *corev1.Pod) (left []string) {
	if arg := egressSelector(apiServerPod); arg != "" {
		left = append(left, fmt.Sprintf("%s: %s, which is not as it was installed", p.manifestPath, arg))
	}
	left = append(left, p.keepFor(p.manifestPath, mountsOf(apiServerPod))...)
	server := serverManifest(p.bundle)
	if data, err := p.read(server); err == nil && !slices.ContainsFunc(p.j.Changes, func(c Change) bool { return c.Path == server }) {
		if pod, err := decodePod(data); err == nil {
			left = append(left, p.keepFor(server, slices.Concat(mountsOf(pod), namedBy(pod)))...)
		}
	}
	named := namedBy(apiServerPod)
	for _, c := range p.j.Changes {
		if c.Remove && slices.Contains(named, c.Path) {
			p.fail(fmt.Errorf("%s still names %s, in a way that is not as it was installed, and kube-apiserver does not start without that file: "+
				"take that out of the manifest, then run the command again", p.manifestPath, c.Path))
		}
	}
	return left
}

// setAside plans a copy of the server's manifest, which somebody has edited, for
// whoever wants to look at it. It cannot stay where it is: the kubelet would go on
// starting a server without its files, and make an empty one that everybody may
// read (KON-23).
func (p *planner) setAside(file, now string) (reason string, err error) {
	data, err := p.read(file)
	if err != nil {
		return "", err
	}
	name := editedDir + strings.TrimPrefix(backupName(file, now), backupDir)
	p.directory(editedDir, 0o700)
	if !p.exists(name) {
		p.j.Changes = append(p.j.Changes, Change{Step: StepServer, Path: name, Mode: 0o600, Data: data, Old: absent, New: fingerprint(data, 0o600)})
	}
	return "it was changed since the installation, and is now " + name, nil
}

// notInstalled are files of the bundle that an installation found in their place.
func (p *planner) notInstalled() (left []string) {
	for _, name := range []string{serverManifest(p.bundle), p.bundle.Konnectivity.Server.Kubeconfig, p.bundle.ControlPlane.EgressSelectorFile} {
		if p.exists(name) && p.state.file(name) == nil {
			left = append(left, name+": it was there before the installation")
		}
	}
	return left
}

// egressNow is the egress selector of kube-apiserver's manifest as it is now.
func (n *node) egressNow() string {
	data, err := n.read(n.manifestPath)
	if err != nil {
		return ""
	}
	pod, err := decodePod(data)
	if err != nil {
		return ""
	}
	return egressSelector(pod)
}

// keepFor leaves files and directories that somebody needs.
func (p *planner) keepFor(who string, needed []string) (left []string) {
	keep := func(name string) bool {
		needs := slices.Contains(needed, path.Clean(name))
		if needs {
			left = append(left, fmt.Sprintf("%s: %s needs it", name, who))
		}
		return needs
	}
	p.j.Changes = slices.DeleteFunc(p.j.Changes, func(c Change) bool { return c.Remove && keep(c.Path) })
	p.j.RemoveDirs = slices.DeleteFunc(p.j.RemoveDirs, keep)
	return left
}

// mounted tells whether kube-apiserver's manifest, if this run changes it, mounts a
// directory as it is now: somebody may have given the volume another name since.
func (t *transaction) mounted(dir string) bool {
	i := slices.IndexFunc(t.Changes, func(c Change) bool { return c.Step == StepAPIServer })
	if i < 0 {
		return false
	}
	data, err := t.read(t.Changes[i].Path)
	if err != nil {
		return false
	}
	pod, err := decodePod(data)
	return err == nil && slices.Contains(mountsOf(pod), path.Clean(dir))
}

// stillNamed is a file that this run would take away, going back, although the
// manifest still names it.
func (t *transaction) stillNamed(pod *corev1.Pod) string {
	named := namedBy(pod)
	for _, c := range t.Changes {
		if c.Old == absent && slices.Contains(named, c.Path) {
			return c.Path
		}
	}
	return ""
}
