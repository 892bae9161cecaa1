// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// Fake returns a cluster whose API server is a fake clientset. In addition to what the clientset does, it evaluates the field
// selectors of package resolve and the RoleBindings of a user, and it has Service kubernetes. Unlike an API server it
// validates nothing and sets no defaults. [Cluster.Config] is nil.
func Fake(t testing.TB) *Cluster {
	t.Helper()
	tracker := clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	client := &fake.Clientset{} // one of fake.NewClientset also keeps managed fields, which takes seconds
	client.AddReactor("list", "*", selectFields(tracker))
	client.AddReactor("*", "*", clienttesting.ObjectReaction(tracker))
	c := &Cluster{ControlPlane: &daemontest.ControlPlane{Client: client}, t: t}
	c.Namespace("default")
	c.Service("default", "kubernetes", corev1.ServiceSpec{
		ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"}, Ports: []corev1.ServicePort{{Name: "https", Port: 443}},
	})
	return c
}

// fieldsOf returns the fields of an object that a selector may name. An unknown one fails the request, as in an API server.
func fieldsOf(object runtime.Object) fields.Set {
	switch o := object.(type) {
	case *corev1.Pod:
		ip := o.Status.PodIP
		return fields.Set{"metadata.name": o.Name, "spec.nodeName": o.Spec.NodeName, "status.podIP": ip}
	case *corev1.Service:
		return fields.Set{"metadata.name": o.Name, "spec.clusterIP": o.Spec.ClusterIP}
	case *corev1.Node, *discoveryv1.EndpointSlice:
		return fields.Set{"metadata.name": o.(metav1.Object).GetName()}
	}
	return nil
}

// selectFields answers lists with a field selector.
func selectFields(tracker clienttesting.ObjectTracker) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		list := action.(clienttesting.ListActionImpl)
		selector := list.GetListRestrictions().Fields
		if selector == nil || selector.Empty() {
			return false, nil, nil
		}
		all, err := tracker.List(list.GetResource(), list.GetKind(), list.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		items, err := meta.ExtractList(all)
		if err != nil {
			return true, nil, err
		}
		var selected []runtime.Object
		for _, item := range items {
			known := fieldsOf(item)
			for _, r := range selector.Requirements() {
				if !known.Has(r.Field) {
					return true, nil, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", r.Field))
				}
			}
			if selector.Matches(known) {
				selected = append(selected, item)
			}
		}
		return true, all, meta.SetList(all, selected)
	}
}

// fakeAs returns a client for the same objects, with the rights that the user's RoleBindings give.
func (c *Cluster) fakeAs(user string) *fake.Clientset {
	return c.fakeBehind(func(action clienttesting.Action) error {
		if !c.mayDo(user, action) {
			return forbidden(user, action)
		}
		return nil
	})
}

// Without returns a client of a fake that may do everything but read some resources.
func (c *Cluster) Without(resources ...string) kubernetes.Interface {
	return c.fakeBehind(func(action clienttesting.Action) error {
		if slices.Contains(resources, action.GetResource().Resource) {
			return forbidden("someone", action)
		}
		return nil
	})
}

// fakeBehind returns a client for the same objects that calls before for each request, and fails the request if before does.
func (c *Cluster) fakeBehind(before func(clienttesting.Action) error) *fake.Clientset {
	client := &fake.Clientset{}
	client.AddReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if err := before(action); err != nil {
			return true, nil, err
		}
		object, err := c.Client.(*fake.Clientset).Invokes(action, nil)
		return true, object, err
	})
	return client
}

// mayDo reports whether a RoleBinding of the namespace gives a user a right.
func (c *Cluster) mayDo(user string, action clienttesting.Action) bool {
	bindings, err := c.Client.RbacV1().RoleBindings(action.GetNamespace()).List(c.t.Context(), metav1.ListOptions{})
	c.check(err)
	for i := range bindings.Items {
		b := &bindings.Items[i]
		if b.Namespace != action.GetNamespace() || !slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return s.Kind == rbacv1.UserKind && s.Name == user }) {
			continue
		}
		role, err := c.Client.RbacV1().Roles(b.Namespace).Get(c.t.Context(), b.RoleRef.Name, metav1.GetOptions{})
		c.check(err)
		if slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Verbs, action.GetVerb()) && slices.Contains(r.APIGroups, action.GetResource().Group) && slices.Contains(r.Resources, action.GetResource().Resource)
		}) {
			return true
		}
	}
	return false
}

// forbidden is how an API server refuses a request.
func forbidden(user string, action clienttesting.Action) error {
	of := action.GetResource().GroupResource()
	scope := "at the cluster scope"
	if action.GetNamespace() != "" {
		scope = fmt.Sprintf("in the namespace %q", action.GetNamespace())
	}
	name := ""
	if named, ok := action.(interface{ GetName() string }); ok {
		name = named.GetName()
	}
	return apierrors.NewForbidden(of, name,
		fmt.Errorf("User %q cannot %s resource %q in API group %q %s", user, action.GetVerb(), of.Resource, of.Group, scope))
}
