// SPDX-License-Identifier: Apache-2.0

// Package manifeststest lets kubeadm itself write and read what package manifests edits.
package manifeststest

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	kubeadmscheme "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/scheme"
	kubeadmv1beta4 "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/controlplane"
	kubeadmconfig "k8s.io/kubernetes/cmd/kubeadm/app/util/config"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/config/strict"
)

// Kubeadm has kubeadm itself write kube-apiserver's manifest.
func Kubeadm(t *testing.T, change func(*kubeadmapi.InitConfiguration)) []byte {
	t.Helper()
	config, err := kubeadmconfig.DefaultedStaticInitConfiguration()
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(config)
	}
	dir := t.TempDir()
	if err := controlplane.CreateStaticPodFiles(dir, "", &config.ClusterConfiguration, &config.LocalAPIEndpoint, false, "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "kube-apiserver.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// ReadCluster decodes a stored ClusterConfiguration as kubeadm does. It turns
// the strict check's warning into an error.
func ReadCluster(t *testing.T, text string) *kubeadmapi.ClusterConfiguration {
	t.Helper()
	gvk := kubeadmv1beta4.SchemeGroupVersion.WithKind("ClusterConfiguration")
	if err := strict.VerifyUnmarshalStrict([]*runtime.Scheme{kubeadmscheme.Scheme}, gvk, []byte(text)); err != nil {
		t.Fatalf("kubeadm does not read it: %v\n%s", err, text)
	}
	config := &kubeadmapi.ClusterConfiguration{}
	if err := runtime.DecodeInto(kubeadmscheme.Codecs.UniversalDecoder(), []byte(text), config); err != nil {
		t.Fatal(err)
	}
	return config
}
