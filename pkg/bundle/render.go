// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
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
	// SchedulerFiles belong on every control plane node that is to run the second
	// scheduler, if that is a static Pod, in the order in which to write them. Its
	// kubeconfig is not among them: see scheduler.StaticKubeconfig.
	SchedulerFiles []File
	// GatewayFiles belong on every control plane node that is to run the gateway, if
	// that is a static Pod, in the order in which to write them. Its kubeconfig and its
	// serving certificate are not among them: see gateway.StaticKubeconfig and
	// gateway.CertificateRequest.
	GatewayFiles []File
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
	for _, ns := range namespaces(b) {
		out.Objects = append(out.Objects, ns)
	}
	for _, part := range []func(*v1alpha1.Bundle) ([]component.Object, error){konnectivity.Objects, scheduler.Objects, gateway.Objects, tunnelapi.Objects} {
		objects, err := part(b)
		if err != nil {
			return nil, fmt.Errorf("render bundle: %w", err)
		}
		out.Objects = append(out.Objects, objects...)
	}
	var err error
	if out.SchedulerFiles, err = schedulerFiles(b); err != nil {
		return nil, fmt.Errorf("render bundle: %w", err)
	}
	if out.GatewayFiles, err = gatewayFiles(b); err != nil {
		return nil, fmt.Errorf("render bundle: %w", err)
	}
	if !ptr.Deref(b.Konnectivity.Enabled, true) {
		return out, nil
	}
	if out.HostFiles, err = hostFiles(b); err != nil {
		return nil, fmt.Errorf("render bundle: %w", err)
	}
	if out.KubeadmFiles, err = kubeadmFiles(b); err != nil {
		return nil, fmt.Errorf("render bundle: %w", err)
	}
	return out, nil
}

// namespaces are those of the bundle but for the ones that every cluster has. The
// Pod Security level is what the Pods need: the Konnectivity server is on the host
// network and mounts host paths. A static Pod counts, too: admission would refuse
// its mirror Pod, so that the Service would never list it. There are no Pods in the
// namespace of the servers' Leases.
func namespaces(b *v1alpha1.Bundle) []*corev1.Namespace {
	k := &b.Konnectivity
	tunnel := ptr.Deref(k.Enabled, true)
	level := "restricted"
	if tunnel || staticScheduler(b) || gateway.IsStatic(b) {
		level = "privileged"
	}
	out := []*corev1.Namespace{namespace(b.Namespace, level)}
	if tunnel && ptr.Deref(k.LeaseCounting, false) && k.LeaseNamespace != b.Namespace {
		out = append(out, namespace(k.LeaseNamespace, "restricted"))
	}
	return slices.DeleteFunc(out, func(ns *corev1.Namespace) bool { return component.IsBuiltInNamespace(ns.Name) })
}

func namespace(name, level string) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{enforceLabel: level}},
	}
}

func hostFiles(b *v1alpha1.Bundle) ([]File, error) {
	config, err := apiserver.EgressSelectorConfiguration(b)
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

func staticScheduler(b *v1alpha1.Bundle) bool {
	return ptr.Deref(b.Scheduler.Enabled, true) && b.Scheduler.Form == v1alpha1.FormStaticPod
}

// schedulerFiles has the configuration before the manifest that mounts it.
func schedulerFiles(b *v1alpha1.Bundle) ([]File, error) {
	if !staticScheduler(b) {
		return nil, nil
	}
	config, err := scheduler.Configuration(b, b.Scheduler.Kubeconfig)
	if err != nil {
		return nil, err
	}
	pod, err := component.StaticPod(scheduler.StaticComponent(b, b.Scheduler.Kubeconfig, config))
	if err != nil {
		return nil, err
	}
	manifest, err := EncodeYAML(pod)
	if err != nil {
		return nil, err
	}
	return []File{
		{Path: scheduler.ConfigPath(b), Mode: 0o644, Data: config},
		{Path: path.Join(b.ControlPlane.ManifestsDir, b.Scheduler.Name+".yaml"), Mode: 0o600, Data: manifest},
	}, nil
}

// gatewayFiles has the rules before the manifest that mounts them.
func gatewayFiles(b *v1alpha1.Bundle) ([]File, error) {
	if !gateway.IsStatic(b) {
		return nil, nil
	}
	var files []File
	if b.Gateway.Rules != nil {
		rules, err := gateway.RuleFile(b)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: gateway.RulesPath, Mode: 0o644, Data: rules})
	}
	pod, err := component.StaticPod(gateway.Component(b))
	if err != nil {
		return nil, err
	}
	manifest, err := EncodeYAML(pod)
	if err != nil {
		return nil, err
	}
	return append(files, File{Path: path.Join(b.ControlPlane.ManifestsDir, v1alpha1.GatewayName+".yaml"), Mode: 0o600, Data: manifest}), nil
}

func kubeadmFiles(b *v1alpha1.Bundle) ([]File, error) {
	config, err := apiserver.KubeadmPatch(b)
	if err != nil {
		return nil, err
	}
	patch, err := apiserver.StaticPodPatch(b)
	if err != nil {
		return nil, err
	}
	files := []File{
		{Path: KubeadmConfigPath, Mode: 0o644, Data: config},
		{Path: path.Join(KubeadmPatchesDir, apiserver.StaticPodPatchFile), Mode: 0o644, Data: patch},
	}
	sans, err := apiserver.KubeadmSANs(b)
	if err != nil || sans == nil {
		return files, err
	}
	return append(files, File{Path: KubeadmSANsPath, Mode: 0o644, Data: sans}), nil
}
