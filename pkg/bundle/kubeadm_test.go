// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"errors"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	kubeadmscheme "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/scheme"
	kubeadmv1beta4 "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	kubeadmvalidation "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/validation"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/controlplane"
	kubeadmconfig "k8s.io/kubernetes/cmd/kubeadm/app/util/config"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/config/strict"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/patches"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// kubeadmPod lets kubeadm itself make kube-apiserver's static Pod.
func kubeadmPod(t *testing.T, change func(*kubeadmapi.ClusterConfiguration)) *corev1.Pod {
	t.Helper()
	init, err := kubeadmconfig.DefaultedStaticInitConfiguration()
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&init.ClusterConfiguration)
	}
	pod := controlplane.GetStaticPodSpecs(&init.ClusterConfiguration, &init.LocalAPIEndpoint, []kubeadmapi.EnvVar{})["kube-apiserver"]
	return &pod
}

// kubeadmFile is one of the rendered kubeadm files.
func kubeadmFile(t *testing.T, b *v1alpha1.Bundle, name string) []byte {
	t.Helper()
	for _, f := range render(t, b).KubeadmFiles {
		if f.Path == name {
			return f.Data
		}
	}
	t.Fatalf("no kubeadm file %s", name)
	return nil
}

// kubeadmReads decodes the ClusterConfiguration patch as kubeadm does, but with
// its strict check as an error.
func kubeadmReads(t *testing.T, data []byte) *kubeadmapi.ClusterConfiguration {
	t.Helper()
	gvk := schema.GroupVersionKind{Group: kubeadmv1beta4.GroupName, Version: "v1beta4", Kind: "ClusterConfiguration"}
	if err := strict.VerifyUnmarshalStrict([]*runtime.Scheme{kubeadmscheme.Scheme}, gvk, data); err != nil {
		t.Fatalf("kubeadm does not read it: %v\n%s", err, data)
	}
	config := &kubeadmapi.ClusterConfiguration{}
	if err := runtime.DecodeInto(kubeadmscheme.Codecs.UniversalDecoder(), data, config); err != nil {
		t.Fatal(err)
	}
	return config
}

// konnectivityVariants are the variants that have a tunnel.
func konnectivityVariants(t *testing.T) map[string]*v1alpha1.Bundle {
	t.Helper()
	out := variants(t)
	for name, b := range out {
		if !*b.Konnectivity.Enabled {
			delete(out, name)
		}
	}
	return out
}

// TestKubeadmConfiguration: kubeadm's own strict decoder and validation accept
// the configuration, which passes --egress-selector-config-file to
// kube-apiserver and mounts the directories of that file and of the socket. The
// configuration sets no flag that kubeadm sets itself.
// It observes AGG-10 of docs/requirements.md.
// It also observes KON-65 of docs/requirements.md.
func TestKubeadmConfiguration(t *testing.T) {
	for name, b := range konnectivityVariants(t) {
		t.Run(name, func(t *testing.T) {
			data := kubeadmFile(t, b, bundle.KubeadmConfigPath)
			config := kubeadmReads(t, data)
			if errs := kubeadmvalidation.ValidateAPIServer(&config.APIServer, nil); len(errs) > 0 {
				t.Error(errs.ToAggregate())
			}
			var tree map[string]any
			if err := yaml.Unmarshal(data, &tree); err != nil {
				t.Fatal(err)
			}
			for key := range tree {
				if !slices.Contains([]string{"apiVersion", "kind", "apiServer"}, key) {
					t.Errorf("the patch also says %s", key)
				}
			}
			showsAPIServerCert := b.Konnectivity.Server.CertFile == path.Join(b.ControlPlane.PKIDir, "apiserver.crt")
			if got := slices.Contains(config.APIServer.CertSANs, b.Konnectivity.ServerHost); got != showsAPIServerCert {
				t.Errorf("certSANs %v, the host that agents dial is %s", config.APIServer.CertSANs, b.Konnectivity.ServerHost)
			}
			for _, arg := range config.APIServer.ExtraArgs {
				if strings.HasPrefix(arg.Name, "requestheader-") || strings.HasPrefix(arg.Name, "proxy-client-") {
					t.Errorf("kubeadm sets %s itself", arg.Name)
				}
			}
		})
	}
}

// normal makes two kube-apiserver Pods comparable: kubeadm sorts flags, mounts
// and volumes, a patch appends.
func normal(pod *corev1.Pod) *corev1.Pod {
	out := pod.DeepCopy()
	c := &out.Spec.Containers[0]
	slices.Sort(c.Command)
	slices.SortFunc(c.VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(out.Spec.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// TestThreeWaysAgree: the kubeadm configuration, kubeadm's patches directory and
// PatchPod turn kubeadm's own Pod into the same one.
// It observes KON-07 and KON-08 of docs/requirements.md.
// It also observes OLD-25 of docs/requirements.md.
func TestThreeWaysAgree(t *testing.T) {
	for name, b := range konnectivityVariants(t) {
		t.Run(name, func(t *testing.T) {
			plain := kubeadmPod(t, nil)
			patched, err := apiserver.PatchPod(plain, b)
			if err != nil {
				t.Fatal(err)
			}
			config := kubeadmReads(t, kubeadmFile(t, b, bundle.KubeadmConfigPath))
			byConfig := kubeadmPod(t, func(c *kubeadmapi.ClusterConfiguration) {
				c.APIServer.ExtraArgs, c.APIServer.ExtraVolumes = config.APIServer.ExtraArgs, config.APIServer.ExtraVolumes
			})
			if diff := cmp.Diff(normal(byConfig), normal(patched)); diff != "" {
				t.Errorf("-kubeadm configuration +PatchPod:\n%s", diff)
			}
			if diff := cmp.Diff(patched, kubeadmPatches(t, b, plain), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-PatchPod +kubeadm patches:\n%s", diff)
			}
			if cmp.Equal(plain, patched) {
				t.Error("nothing was patched")
			}
			if errs := validate(t, decodeStrict(t, encode(t, patched))); len(errs) > 0 {
				t.Errorf("the patched Pod is invalid: %v", errs.ToAggregate())
			}
		})
	}
}

// kubeadmPatches applies the rendered patches directory with kubeadm's own code.
func kubeadmPatches(t *testing.T, b *v1alpha1.Bundle, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	at := writeFiles(t, render(t, b).KubeadmFiles)
	manager, err := patches.GetPatchManagerForPath(filepath.Clean(at(bundle.KubeadmPatchesDir)), patches.KnownTargets(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	target := &patches.PatchTarget{Name: "kube-apiserver", StrategicMergePatchObject: corev1.Pod{}, Data: encode(t, pod)}
	if err := manager.ApplyPatchesToTarget(target); err != nil {
		t.Fatal(err)
	}
	out := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(target.Data, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPatchPodIsIdempotent and leaves its argument alone.
func TestPatchPodIsIdempotent(t *testing.T) {
	b := load(t, "")
	pod := kubeadmPod(t, nil)
	before := pod.DeepCopy()
	once, err := apiserver.PatchPod(pod, b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, pod); diff != "" {
		t.Errorf("the argument was changed:\n%s", diff)
	}
	twice, err := apiserver.PatchPod(once, b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(once, twice); diff != "" {
		t.Errorf("the second patch changed:\n%s", diff)
	}
}

// TestPatchPodRefuses observes KON-08 of docs/requirements.md.
// It also observes OLD-29 of docs/requirements.md.
func TestPatchPodRefuses(t *testing.T) {
	b := load(t, "")
	const dir = "/etc/kubernetes/konnectivity-server"
	hostPath := func(path string) corev1.VolumeSource {
		return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod, *corev1.Container)
		want   string
	}{
		"another configuration": {func(_ *corev1.Pod, c *corev1.Container) {
			c.Command = append(c.Command, "--egress-selector-config-file=/other.yaml")
		}, "--egress-selector-config-file=/other.yaml"},
		"another configuration in args": {func(_ *corev1.Pod, c *corev1.Container) {
			c.Args = []string{"--egress-selector-config-file", "/other.yaml"}
		}, "--egress-selector-config-file"},
		"another volume": {func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: apiserver.VolumeSocket, VolumeSource: hostPath("/other")})
		}, "volume konnectivity-uds"},
		"a mount in its place": {func(_ *corev1.Pod, c *corev1.Container) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "other", MountPath: dir})
		}, "volume other at " + dir},
		"a read-only mount": {func(p *corev1.Pod, c *corev1.Container) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: apiserver.VolumeSocket, VolumeSource: hostPath(dir)})
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: apiserver.VolumeSocket, MountPath: dir, ReadOnly: true})
		}, "konnectivity-uds"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := kubeadmPod(t, nil)
			tc.change(pod, &pod.Spec.Containers[0])
			out, err := apiserver.PatchPod(pod, b)
			if !errors.Is(err, apiserver.ErrConflict) || !strings.Contains(err.Error(), tc.want) || out != nil {
				t.Errorf("Pod %v, error %v, want ErrConflict with %q", out, err, tc.want)
			}
		})
	}
	if _, err := apiserver.PatchPod(&corev1.Pod{}, b); err == nil {
		t.Error("a Pod without kube-apiserver was patched")
	}
}

// TestPatchPodWithArguments: other installers put flags into args.
// It observes KON-07 of docs/requirements.md.
func TestPatchPodWithArguments(t *testing.T) {
	pod := kubeadmPod(t, nil)
	c := &pod.Spec.Containers[0]
	c.Command, c.Args = c.Command[:1], c.Command[1:]
	out, err := apiserver.PatchPod(pod, load(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	got := out.Spec.Containers[0]
	isSet := func(arg string) bool { return strings.HasPrefix(arg, "--egress-selector-config-file=") }
	if len(got.Command) != 1 || !slices.Equal(got.Args[:len(c.Args)], c.Args) || !slices.ContainsFunc(got.Args[len(c.Args):], isSet) {
		t.Errorf("command %q, args %q", got.Command, got.Args)
	}
}
