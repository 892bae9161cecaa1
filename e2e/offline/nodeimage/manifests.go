// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"

	"github.com/fairlead-dev/fairlead/pkg/imagetar"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// kindnetImage holds cmd/kindnet.
const kindnetImage = "fairlead-dev/kindnet:v1"

// podSubnet is filled in by kind when it reads "would you kindly template this file".
const podSubnet = "{{ .PodSubnet }}"

// manifestFiles are what `kind create cluster` applies: the network, and a storage class, for a node image has to bring one.
func manifestFiles() ([]imagetar.File, error) {
	var files []imagetar.File
	for name, manifest := range map[string]struct {
		head    string
		objects []runtime.Object
	}{
		"kind/manifests/default-cni.yaml":     {"# would you kindly template this file\n", kindnetObjects()},
		"kind/manifests/default-storage.yaml": {"# Volumes are made by hand: no provisioner is built without a registry.\n", storageObjects()},
	} {
		var text bytes.Buffer
		text.WriteString(manifest.head)
		for _, object := range manifest.objects {
			data, err := yaml.Marshal(object)
			if err != nil {
				return nil, err
			}
			text.WriteString("---\n")
			text.Write(data)
		}
		files = append(files, imagetar.File{Name: name, Data: text.Bytes()})
	}
	return files, nil
}

func storageObjects() []runtime.Object {
	return []runtime.Object{&storagev1.StorageClass{
		TypeMeta:          metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"},
		ObjectMeta:        metav1.ObjectMeta{Name: "standard"},
		Provisioner:       "kubernetes.io/no-provisioner",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}}
}

// kindnetObjects have the names of the objects that released node images bring.
func kindnetObjects() []runtime.Object {
	const name = "kindnet"
	meta := metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem, Labels: map[string]string{"app": name, "k8s-app": name, "tier": "node"}}
	labels := map[string]string{"app": name}
	return []runtime.Object{
		&corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: meta},
		&rbacv1.ClusterRole{
			TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch"}}},
		},
		&rbacv1.ClusterRoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: metav1.NamespaceSystem}},
		},
		&appsv1.DaemonSet{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
			ObjectMeta: meta,
			Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels}, Spec: kindnetPod(name)},
			},
		},
	}
}

func kindnetPod(name string) corev1.PodSpec {
	hostPath := func(name, path string, kind corev1.HostPathType) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}}
	}
	return corev1.PodSpec{
		HostNetwork:        true,
		NodeSelector:       map[string]string{corev1.LabelOSStable: "linux"},
		Tolerations:        []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		PriorityClassName:  "system-node-critical",
		ServiceAccountName: name,
		Containers: []corev1.Container{{
			Name: "kindnet-cni", Image: kindnetImage, ImagePullPolicy: corev1.PullIfNotPresent,
			Env: []corev1.EnvVar{
				{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
				{Name: "POD_SUBNET", Value: podSubnet},
			},
			SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN", "NET_RAW"}}},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "cni-cfg", MountPath: "/etc/cni/net.d"},
				{Name: "xtables-lock", MountPath: "/run/xtables.lock"},
				{Name: "lib-modules", MountPath: "/lib/modules", ReadOnly: true},
			},
		}},
		Volumes: []corev1.Volume{
			hostPath("cni-cfg", "/etc/cni/net.d", corev1.HostPathDirectoryOrCreate),
			hostPath("xtables-lock", "/run/xtables.lock", corev1.HostPathFileOrCreate),
			hostPath("lib-modules", "/lib/modules", corev1.HostPathUnset),
		},
	}
}
