package bundle

import (
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/egress"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Output is a rendered bundle.
type Output struct {
	// Objects are the in-cluster objects in the order in which to apply them.
	Objects []component.Object
	// HostFiles belong on every control plane node, in the order in which to write
	// them; paths are absolute. The kubeconfig of the Konnectivity server is not
	// among them, as it takes the cluster's CA: see konnectivity.ServerKubeconfig,
	// and write it before these.
	HostFiles []File
	// KubeadmFiles set up kube-apiserver by kubeadm, in either of two ways; paths
	// are relative.
	KubeadmFiles []File
}

// enforceLabel sets the Pod Security level of a namespace.
const enforceLabel = "pod-security.kubernetes.io/enforce"

// File is a file to write.
type File struct {
	Path string
	// Mode holds permission bits.
	Mode uint32
	Data []byte
}

// Paths in Output.KubeadmFiles.
const (
	// KubeadmConfigPath is the one way: flag, mounts and certificate name in a
	// kubeadm configuration.
	KubeadmConfigPath = "cluster-configuration.yaml"
	// KubeadmPatchesDir is the other way: flag and mounts as kubeadm patches, which
	// do not reach certificates.
	KubeadmPatchesDir = "patches"
	// KubeadmSANsPath is a kubeadm configuration with the certificate's name alone,
	// to go with the patches. There is none where agents are shown a certificate
	// that kubeadm does not make.
	KubeadmSANsPath = "certificate-sans.yaml"
)

// Render renders a bundle. It defaults a copy, so b may be one that was made in Go
// and names only what differs; nil is the default bundle. It fails with
// [ErrInvalid] where [Load] would.
func Render(b *v1alpha1.Bundle) (*Output, error) {
	b = b.Defaulted()
	if errs := Validate(b); len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, errs.ToAggregate())
	}
	out := &Output{}
	if ns := namespace(b); ns != nil {
		out.Objects = append(out.Objects, ns)
	}
	for _, part := range []func(*v1alpha1.Bundle) ([]component.Object, error){konnectivity.Objects, scheduler.Objects} {
		objects, err := part(b)
		if err != nil {
			return nil, fmt.Errorf("render bundle: %w", err)
		}
		out.Objects = append(out.Objects, objects...)
	}
	if !ptr.Deref(b.Konnectivity.Enabled, true) {
		return out, nil
	}
	var err error
	if out.HostFiles, err = hostFiles(b); err != nil {
		return nil, fmt.Errorf("render bundle: %w", err)
	}
	if out.KubeadmFiles, err = kubeadmFiles(b); err != nil {
		return nil, fmt.Errorf("render bundle: %w", err)
	}
	return out, nil
}

// namespace is nil for the namespaces that every cluster has. Its Pod Security
// level is what its Pods need: the Konnectivity server is on the host network and
// mounts host paths. A static server counts, too: admission would refuse its
// mirror Pod, so that the Service would never list it.
func namespace(b *v1alpha1.Bundle) *corev1.Namespace {
	if slices.Contains([]string{metav1.NamespaceSystem, metav1.NamespaceDefault, metav1.NamespacePublic}, b.Namespace) {
		return nil
	}
	level := "restricted"
	if ptr.Deref(b.Konnectivity.Enabled, true) {
		level = "privileged"
	}
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: b.Namespace, Labels: map[string]string{enforceLabel: level}},
	}
}

func hostFiles(b *v1alpha1.Bundle) ([]File, error) {
	config, err := egress.Configuration(b)
	if err != nil {
		return nil, err
	}
	files := []File{{Path: b.ControlPlane.EgressSelectorFile, Mode: 0o644, Data: config}}
	if b.Konnectivity.Server.Form != v1alpha1.FormStaticPod {
		return files, nil
	}
	pod, err := component.StaticPod(konnectivity.Server(b))
	if err != nil {
		return nil, err
	}
	manifest, err := EncodeYAML(pod)
	if err != nil {
		return nil, err
	}
	return append(files, File{
		Path: path.Join(b.ControlPlane.ManifestsDir, konnectivity.ServerName+".yaml"), Mode: 0o600, Data: manifest,
	}), nil
}

func kubeadmFiles(b *v1alpha1.Bundle) ([]File, error) {
	config, err := egress.KubeadmPatch(b)
	if err != nil {
		return nil, err
	}
	patch, err := egress.StaticPodPatch(b)
	if err != nil {
		return nil, err
	}
	files := []File{
		{Path: KubeadmConfigPath, Mode: 0o644, Data: config},
		{Path: path.Join(KubeadmPatchesDir, egress.StaticPodPatchFile), Mode: 0o644, Data: patch},
	}
	sans, err := egress.KubeadmSANs(b)
	if err != nil || sans == nil {
		return files, err
	}
	return append(files, File{Path: KubeadmSANsPath, Mode: 0o644, Data: sans}), nil
}
