// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// namespaceCase is a namespace of the bundle, and whether uninstalling may delete
// it.
type namespaceCase struct {
	name string
	// before and after run before and after the installation.
	before, after func(e env, namespace string)
	// kept is in the note about a namespace that stays; empty for one that is
	// deleted.
	kept string
}

var namespaceCases = []namespaceCase{
	{name: "ours-alone", after: env.ofEveryNamespace},
	{name: "there-before", before: env.makeNamespace, kept: "it was there before"},
	{name: "with-a-configmap", after: env.makeConfigMap, kept: "it holds ConfigMap notes of another owner"},
	{name: "with-a-policy", after: env.makePolicy, kept: "it holds NetworkPolicy deny of another owner"},
	{name: "books-lost", after: env.loseInventory, kept: "it was there before"},
	{name: "of-another-user", before: env.makeNamespace, after: env.makeConfigMap, kept: "it was there before"},
}

// testNamespaces checks that uninstalling never deletes a namespace that fairlead
// has not created, or that contains an object of another owner, whatever its kind
// and labels. Such objects stay, and fairlead's objects in the namespace are
// deleted.
func testNamespaces(e env) {
	for _, tc := range namespaceCases {
		e.t.Cleanup(func() { e.dropNamespace(tc.name) })
		if tc.before != nil {
			tc.before(e, tc.name)
		}
		e.apply(objects(e.t, func(b *v1alpha1.Bundle) { b.Namespace = tc.name }), install.Options{Force: true})
		if tc.after != nil {
			tc.after(e, tc.name)
		}
		foreign := e.foreignNames(tc.name)
		for _, dry := range []bool{true, false} {
			r, err := install.Uninstall(e.t.Context(), e.cfg, install.UninstallOptions{DryRun: dry}.Quick())
			if err != nil {
				e.t.Fatalf("%s: %v", tc.name, err)
			}
			if note, found := noteOf(r, tc.name); !found || (note == "") != (tc.kept == "") || !strings.Contains(note, tc.kept) {
				e.t.Errorf("%s, dry run %v: the namespace is reported as %q, want %q", tc.name, dry, note, tc.kept)
			}
		}
		ns, err := e.client.CoreV1().Namespaces().Get(e.t.Context(), tc.name, metav1.GetOptions{})
		if gone := apierrors.IsNotFound(err) || err == nil && ns.DeletionTimestamp != nil; gone != (tc.kept == "") {
			e.t.Errorf("%s: deleted %v, %v", tc.name, gone, err)
		}
		if now := e.foreignNames(tc.name); now != foreign {
			e.t.Errorf("%s: before, the objects of other owners were %s, now they are %s", tc.name, foreign, now)
		}
		for name, s := range e.dump() {
			if s.Namespace == tc.name && !strings.Contains(foreign, s.Name) {
				e.t.Errorf("left %s", name)
			}
		}
	}
}

func noteOf(r *install.Result, namespace string) (note string, found bool) {
	for _, o := range r.Objects {
		if o.Kind == "Namespace" && o.Name == namespace {
			if o.Action == install.Deleted {
				return "", true
			}
			return o.Note, true
		}
	}
	return "", false
}

// foreignNames returns the objects in a namespace that fairlead did not create.
func (e env) foreignNames(namespace string) string {
	e.t.Helper()
	var names []string
	for _, name := range []string{"default", "kube-root-ca.crt", "notes", "deny"} {
		_, err1 := e.client.CoreV1().ConfigMaps(namespace).Get(e.t.Context(), name, metav1.GetOptions{})
		_, err2 := e.client.NetworkingV1().NetworkPolicies(namespace).Get(e.t.Context(), name, metav1.GetOptions{})
		_, err3 := e.client.CoreV1().ServiceAccounts(namespace).Get(e.t.Context(), name, metav1.GetOptions{})
		if err1 == nil || err2 == nil || err3 == nil {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

func (e env) makeNamespace(name string) {
	e.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := e.client.CoreV1().Namespaces().Create(e.t.Context(), ns, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

// makeConfigMap creates a ConfigMap that looks like ours. A program with our name
// has updated it, and an update is not an apply.
func (e env) makeConfigMap(namespace string) {
	e.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "notes", Labels: map[string]string{"app.kubernetes.io/managed-by": "fairlead"}}}
	if _, err := e.client.CoreV1().ConfigMaps(namespace).Create(e.t.Context(), cm, metav1.CreateOptions{FieldManager: install.FieldManager}); err != nil {
		e.t.Fatal(err)
	}
}

// makePolicy creates an object of a kind that no bundle has.
func (e env) makePolicy(namespace string) {
	e.t.Helper()
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "deny"}}
	if _, err := e.client.NetworkingV1().NetworkPolicies(namespace).Create(e.t.Context(), policy, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

// ofEveryNamespace creates what controllers, which do not run here, create in every
// namespace: no reason to keep it.
func (e env) ofEveryNamespace(namespace string) {
	e.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := e.client.CoreV1().ServiceAccounts(namespace).Create(e.t.Context(), account, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}}
	if _, err := e.client.CoreV1().ConfigMaps(namespace).Create(e.t.Context(), cm, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

// loseInventory deletes the inventory, so it is unknown who created the namespace.
func (e env) loseInventory(string) {
	e.t.Helper()
	if err := e.client.CoreV1().ConfigMaps("kube-system").Delete(e.t.Context(), install.InventoryName, metav1.DeleteOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

// dropNamespace does the work of the namespace controller, which does not run here.
func (e env) dropNamespace(name string) {
	ctx, namespaces := context.Background(), e.client.CoreV1().Namespaces()
	_ = e.client.NetworkingV1().NetworkPolicies(name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	_ = namespaces.Delete(ctx, name, metav1.DeleteOptions{})
	ns, err := namespaces.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return
	}
	ns.Spec.Finalizers = nil
	if _, err := namespaces.Finalize(ctx, ns, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		e.t.Error(err)
	}
}
