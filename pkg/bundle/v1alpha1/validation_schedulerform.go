// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func validateSchedulerForm(s *Scheduler, p *field.Path) field.ErrorList {
	switch s.Form {
	case FormStaticPod:
		return validateStaticScheduler(s, p)
	case FormDeployment:
		errs := atLeastOne(s.Replicas, p.Child("replicas"), "set enabled to false to have none")
		if !ptr.Deref(s.LeaderElection.LeaderElect, true) && ptr.Deref(s.Replicas, 1) > 1 {
			errs = append(errs, field.Invalid(p.Child("replicas"), *s.Replicas,
				"must be 1 with leaderElection.leaderElect false, or all replicas would schedule the same Pods; remove one of the two fields"))
		}
		if s.Kubeconfig != "" {
			errs = append(errs, field.Invalid(p.Child("kubeconfig"), s.Kubeconfig,
				"is for form StaticPod: a Deployment's Pods have a ServiceAccount; remove it"))
		}
		return errs
	}
	return field.ErrorList{field.NotSupported(p.Child("form"), s.Form, []Form{FormDeployment, FormStaticPod})}
}

// kubeadmNames are static Pods and directories in /etc/kubernetes that a scheduler of the
// same name would overwrite, or write its configuration into.
var kubeadmNames = []string{
	"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "konnectivity-server", "konnectivity", "manifests", "pki",
}

// kubeadmKubeconfigs are those of other identities in /etc/kubernetes.
var kubeadmKubeconfigs = []string{"admin.conf", "super-admin.conf", "controller-manager.conf", "scheduler.conf", "kubelet.conf"}

func validateStaticScheduler(s *Scheduler, p *field.Path) field.ErrorList {
	errs := absolute(s.Kubeconfig, p.Child("kubeconfig"))
	if slices.Contains(kubeadmNames, s.Name) {
		errs = append(errs, field.Invalid(p.Child("name"), s.Name,
			"is the name of a file or a directory of another component on control plane nodes; use another one, such as "+DefaultSchedulerName))
	}
	if dir, file := path.Split(s.Kubeconfig); s.Kubeconfig == DefaultServerKubeconfig || dir == "/etc/kubernetes/" && slices.Contains(kubeadmKubeconfigs, file) {
		errs = append(errs, field.Invalid(p.Child("kubeconfig"), s.Kubeconfig,
			"is another component's, whose user does not have this scheduler's rights; use a separate file, such as /etc/kubernetes/"+DefaultSchedulerName+".conf"))
	}
	const perNode = "is not used with form StaticPod, which runs once on each control plane node that has its manifest; remove it"
	if s.Replicas != nil {
		errs = append(errs, field.Invalid(p.Child("replicas"), *s.Replicas, perNode))
	}
	if len(s.NodeSelector) > 0 {
		errs = append(errs, field.Invalid(p.Child("nodeSelector"), s.NodeSelector, perNode))
	}
	if !ptr.Deref(s.LeaderElection.LeaderElect, true) {
		errs = append(errs, field.Invalid(p.Child("leaderElection", "leaderElect"), false,
			"with form StaticPod each control plane node runs one, and all would schedule the same Pods; remove it"))
	}
	return errs
}
