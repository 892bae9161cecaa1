// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// LeasesOf returns the Leases that the programs of a bundle create themselves and
// leave behind. The Konnectivity servers clean up their own.
func LeasesOf(b *v1alpha1.Bundle) []Lease {
	b = b.Defaulted()
	if !ptr.Deref(b.Scheduler.Enabled, true) || !ptr.Deref(b.Scheduler.LeaderElection.LeaderElect, true) {
		return nil
	}
	e := b.Scheduler.LeaderElection
	return []Lease{{Namespace: e.LeaseNamespace, Name: e.LeaseName, HolderPrefix: b.Scheduler.Name + "-"}}
}

// LeasesOfOperator returns the Lease by which the operator's replicas elect one.
func LeasesOfOperator(o operator.Options) []Lease {
	return []Lease{{Namespace: o.Defaulted().Namespace, Name: operator.Name, HolderPrefix: operator.Name + "-"}}
}

// scanned are the kinds that bundles contain.
var scanned = []schema.GroupVersionKind{
	{Version: "v1", Kind: "Namespace"}, {Group: "apiextensions.k8s.io", Version: "v1", Kind: definitionKind}, {Version: "v1", Kind: "ServiceAccount"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Service"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}, {Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	{Group: "apps", Version: "v1", Kind: "DaemonSet"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicy"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicyBinding"},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Kind: "FlowSchema"},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Kind: "PriorityLevelConfiguration"},
	{Group: "apiregistration.k8s.io", Version: "v1", Kind: apiServiceKind},
}

// scanPage is the page size of list requests.
const scanPage = 500

// scan finds the objects that fairlead has applied. It lists all objects of the
// kinds that bundles have and checks their managed fields, so objects are found
// even if the inventory is lost. It reads metadata only. The result names the
// kinds that the user may not list.
func (c *client) scan(ctx context.Context, result *Result) ([]Entry, error) {
	var out []Entry
	for _, gvk := range scanned {
		if gvk.Kind == definitionKind && c.party != Operator {
			continue // no bundle has definitions
		}
		mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			continue // the API server does not serve the kind, so there are none
		}
		options := metav1.ListOptions{Limit: scanPage}
		for {
			list, err := c.metadata.Resource(mapping.Resource).List(ctx, options)
			if apierrors.IsForbidden(err) {
				result.Warnings = append(result.Warnings, fmt.Sprintf("may not list %s: only those of the inventory are looked at", mapping.Resource.Resource))
				break
			}
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", mapping.Resource.Resource, err)
			}
			for i := range list.Items {
				if item := &list.Items[i]; c.party.applied(item.ManagedFields) {
					out = append(out, Entry{Ref: Ref{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: item.Namespace, Name: item.Name}, UID: item.UID,
						// It is unknown whether fairlead created the namespace:
						// keep it.
						Adopted: gvk.Kind == "Namespace"})
				}
			}
			if options.Continue = list.Continue; options.Continue == "" {
				break
			}
		}
	}
	return out, nil
}

// entriesOf are objects that may be installed.
func entriesOf(objects []component.Object) []Entry {
	var out []Entry
	for _, o := range objects {
		gvk := o.GetObjectKind().GroupVersionKind()
		out = append(out, Entry{Ref: Ref{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}})
	}
	return out
}

// made returns the Secret that the operator made for its webhook, and lets its namespace go.
func (c *client) made(ctx context.Context, entries []Entry) ([]Entry, error) {
	if c.party != Operator {
		return nil, nil
	}
	var out []Entry
	for _, e := range entries {
		if e.Kind != "Deployment" || e.Name != operator.Name {
			continue
		}
		secret, err := c.kube.CoreV1().Secrets(e.Namespace).Get(ctx, operator.WebhookSecret, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read Secret %s/%s: %w", e.Namespace, operator.WebhookSecret, err)
		}
		c.ownUIDs = append(c.ownUIDs, secret.UID)
		out = append(out, Entry{Ref: Ref{APIVersion: "v1", Kind: "Secret", Namespace: secret.Namespace, Name: secret.Name}, UID: secret.UID})
	}
	return out, nil
}

// deleteLeases deletes the Leases, but keeps those that another program holds.
func (c *client) deleteLeases(ctx context.Context, leases []Lease, o UninstallOptions, result *Result) error {
	for _, l := range leases {
		if err := c.deleteLease(ctx, l, o, result); err != nil {
			return fmt.Errorf("delete Lease %s/%s: %w", l.Namespace, l.Name, err)
		}
	}
	return nil
}

func (c *client) deleteLease(ctx context.Context, l Lease, o UninstallOptions, result *Result) error {
	client := c.kube.CoordinationV1().Leases(l.Namespace)
	lease, err := client.Get(ctx, l.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	r := ObjectResult{Ref: Ref{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Namespace: l.Namespace, Name: l.Name}, Action: Deleted}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if !strings.HasPrefix(holder, l.HolderPrefix) && held(lease, time.Now()) {
		r.Action, r.Note = Released, fmt.Sprintf("kept: %q holds it", holder)
		result.Objects = append(result.Objects, r)
		return nil
	}
	if o.DryRun {
		result.Objects = append(result.Objects, r)
		return nil
	}
	err = progress.Step(o.Progress, "Deleting "+r.String(), func() (string, error) {
		return "", client.Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &lease.UID}})
	})
	if err == nil {
		result.Objects = append(result.Objects, r)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// held reports whether the Lease's holder has renewed it within the lease
// duration.
func held(lease *coordinationv1.Lease, now time.Time) bool {
	if ptr.Deref(lease.Spec.HolderIdentity, "") == "" || lease.Spec.RenewTime == nil {
		return false
	}
	lasts := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 15)) * time.Second
	return now.Sub(lease.Spec.RenewTime.Time) < lasts
}

// selectorOf returns a selector of a workload's own Pods, or "" for a kind without Pods.
func selectorOf(u *unstructured.Unstructured) string {
	labels, found, err := unstructured.NestedStringMap(u.Object, "spec", "selector", "matchLabels")
	if err != nil || !found || schema.FromAPIVersionAndKind(u.GetAPIVersion(), u.GetKind()).Group != "apps" {
		return ""
	}
	template, _, err := unstructured.NestedStringMap(u.Object, "spec", "template", "metadata", "labels")
	if err != nil {
		return ""
	}
	return konnectivity.PodsOf(metav1.LabelSelector{MatchLabels: labels}, template)
}
