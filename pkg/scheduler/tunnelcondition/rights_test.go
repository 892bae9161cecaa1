// SPDX-License-Identifier: Apache-2.0

package tunnelcondition

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	bundlescheduler "github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// asRendered gives the controller's identity the rights that a bundle renders for it, and returns its client.
func asRendered(t *testing.T, cp *daemontest.ControlPlane) kubernetes.Interface {
	t.Helper()
	b := &v1alpha1.Bundle{Namespace: "default"}
	b.Scheduler.BuiltInProfiles.Spread = &v1alpha1.SpreadProfile{}
	b.Scheduler.Plugins.TunnelReach.Enabled = ptr.To(true)
	b = b.Defaulted()
	name := bundlescheduler.TunnelCondition(b).Name
	objects, err := bundlescheduler.Objects(b)
	if err != nil {
		t.Fatal(err)
	}
	rbac := cp.Client.RbacV1()
	for _, object := range objects {
		if object.GetName() != name {
			continue
		}
		switch o := object.(type) {
		case *rbacv1.ClusterRole:
			_, err = rbac.ClusterRoles().Create(t.Context(), o, metav1.CreateOptions{})
		case *rbacv1.ClusterRoleBinding:
			_, err = rbac.ClusterRoleBindings().Create(t.Context(), o, metav1.CreateOptions{})
		case *rbacv1.Role:
			_, err = rbac.Roles(o.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
		case *rbacv1.RoleBinding:
			_, err = rbac.RoleBindings(o.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:default:" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// mayNot does what the identity has no rights to.
func mayNot(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	core := client.CoreV1()
	for what, try := range map[string]func() error{
		"change a node's labels": func() error {
			_, err := core.Nodes().Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata": {"labels": {"x": "y"}}}`), metav1.PatchOptions{})
			return err
		},
		"delete a node": func() error { return core.Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}) },
		"delete a pod":  func() error { return core.Pods("default").Delete(t.Context(), "agent", metav1.DeleteOptions{}) },
		"read secrets": func() error {
			_, err := core.Secrets("default").List(t.Context(), metav1.ListOptions{})
			return err
		},
		"read pods elsewhere": func() error {
			_, err := core.Pods(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{})
			return err
		},
		"make a pod": func() error {
			_, err := core.Pods("default").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
			return err
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("may %s: %v", what, err)
		}
	}
}
