// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	config "github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// How long until the operator looks again, when no event tells it to.
const (
	resyncReady    = 5 * time.Minute
	resyncNotReady = 20 * time.Second
	// applyTimeout bounds the wait for another run of `fairlead install`.
	applyTimeout = time.Minute
)

// Limits of the status, as in its schema.
const (
	maxDrift   = 32
	maxMessage = 1024
)

// Reasons of conditions.
const (
	reasonAsWanted  = "AsWanted"
	reasonInvalid   = "InvalidBundle"
	reasonDrift     = "Drift"
	reasonBlocked   = "Blocked"
	reasonFailed    = "Failed"
	reasonAvailable = "Available"
	reasonNotReady  = "NotReady"
	reasonDisabled  = "Disabled"
	reasonLeading   = "Leading"
	reasonNoLeader  = "NoLeader"
)

// BundleReconciler applies the Bundle and reports what it sees.
type BundleReconciler struct {
	// Client reads the Bundle and the workloads and writes the status.
	Client client.Client
	// Config is the connection of pkg/install.
	Config *rest.Config
	// Version of the operator.
	Version string
}

// Reconcile implements reconcile.Reconciler.
func (r *BundleReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	b := &v1beta1.Bundle{}
	if err := r.Client.Get(ctx, request.NamespacedName, b); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if b.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // all objects stay
	}
	before := b.Status.DeepCopy()
	failure := r.observe(ctx, b)
	b.Status.ObservedGeneration, b.Status.Version = b.Generation, r.Version
	if !equality.Semantic.DeepEqual(before, &b.Status) {
		if err := r.Client.Status().Update(ctx, b); err != nil {
			if apierrors.IsConflict(err) {
				return ctrl.Result{RequeueAfter: time.Second}, nil // the Bundle has changed meanwhile
			}
			return ctrl.Result{}, fmt.Errorf("write the status of Bundle %s: %w", b.Name, err)
		}
	}
	if failure != nil {
		return ctrl.Result{}, failure
	}
	if meta.IsStatusConditionTrue(b.Status.Conditions, v1beta1.BundleReady) {
		return ctrl.Result{RequeueAfter: resyncReady}, nil
	}
	return ctrl.Result{RequeueAfter: resyncNotReady}, nil
}

// observe fills in the status, and applies the bundle if its policy says so. It returns
// errors that another try may cure.
func (r *BundleReconciler) observe(ctx context.Context, b *v1beta1.Bundle) error {
	set := conditions(b)
	wanted, err := load(b)
	if err != nil {
		b.Status.Drift = nil
		set(v1beta1.BundleReconciled, false, reasonInvalid, err.Error())
		set(v1beta1.BundleReady, false, reasonInvalid, "the spec is not valid, and nothing was changed")
		return nil
	}
	objects, err := install.Objects(ctx, r.Config, wanted, time.Now())
	if err != nil {
		set(v1beta1.BundleReconciled, false, reasonFailed, err.Error())
		return err
	}
	failure := r.apply(ctx, b, wanted, objects)
	if err := r.workloads(ctx, b, wanted, objects); err != nil && failure == nil {
		failure = err
	}
	summarise(b)
	return failure
}

// load returns the configuration of a Bundle.
func load(b *v1beta1.Bundle) (*config.Bundle, error) {
	file, err := json.Marshal(map[string]any{
		"apiVersion": bundle.APIVersion, "kind": bundle.Kind,
		"metadata": map[string]any{"name": b.Name, "annotations": b.Annotations}, "spec": b.Spec,
	})
	if err != nil {
		return nil, err
	}
	return bundle.Load(file)
}

// inUse returns why the bundle must not be applied: without agents, kube-apiserver would reach
// no node. It is "" if nothing speaks against it.
func (r *BundleReconciler) inUse(ctx context.Context, wanted *config.Bundle) (string, error) {
	findings, err := install.Preflight(ctx, r.Config, wanted, false)
	for _, f := range findings {
		if f.ID == install.FindingInUse {
			return f.String(), nil
		}
	}
	return "", err
}

// apply compares first: in the steady state the operator writes nothing.
func (r *BundleReconciler) apply(ctx context.Context, b *v1beta1.Bundle, wanted *config.Bundle, objects []component.Object) error {
	set := conditions(b)
	comparison, err := install.Diff(ctx, r.Config, objects)
	if err != nil {
		set(v1beta1.BundleReconciled, false, reasonFailed, err.Error())
		return err
	}
	b.Status.Drift = drift(comparison)
	switch {
	case len(comparison.Differences) == 0 && len(comparison.Problems) == 0:
		set(v1beta1.BundleReconciled, true, reasonAsWanted, "all objects are as the bundle says")
		return nil
	case b.Spec.ManagementPolicy == v1beta1.ManagementObserve:
		set(v1beta1.BundleReconciled, false, reasonDrift, fmt.Sprintf(
			"%d objects differ (see status.drift) and managementPolicy is Observe: set Enforce, or run fairlead install", len(comparison.Differences)))
		return nil
	}
	why, err := r.inUse(ctx, wanted)
	if err != nil {
		set(v1beta1.BundleReconciled, false, reasonFailed, err.Error())
		return err
	}
	if why != "" {
		set(v1beta1.BundleReconciled, false, reasonBlocked, why)
		return nil
	}
	_, err = install.Apply(ctx, r.Config, objects, install.Options{Leases: install.LeasesOf(wanted), Timeout: applyTimeout})
	if blocked := (*install.BlockedError)(nil); errors.As(err, &blocked) {
		set(v1beta1.BundleReconciled, false, reasonBlocked, blocked.Error())
		return nil
	}
	if err != nil {
		set(v1beta1.BundleReconciled, false, reasonFailed, err.Error())
		return err
	}
	b.Status.Drift = nil
	set(v1beta1.BundleReconciled, true, reasonAsWanted, "all objects are as the bundle says")
	return nil
}

// drift lists the fields with other owners, and the other objects that differ.
func drift(c *install.Comparison) []v1beta1.DriftedField {
	var out []v1beta1.DriftedField
	listed := map[string]bool{}
	for _, p := range c.Problems {
		listed[p.Object.String()] = true
		for _, conflict := range p.Conflicts {
			out = append(out, v1beta1.DriftedField{
				Object: p.Object.String(), Field: conflict.Field, Owner: truncated(conflict.Owner, 256),
				Message: truncated(fmt.Sprintf("is %s, the bundle says %s", conflict.Live, conflict.Wanted), maxMessage),
			})
		}
		if len(p.Conflicts) == 0 {
			out = append(out, v1beta1.DriftedField{Object: p.Object.String(), Message: truncated(p.Message, maxMessage)})
		}
	}
	for _, d := range c.Differences {
		if object := d.Ref.String(); !listed[object] {
			out = append(out, v1beta1.DriftedField{Object: object, Message: "would be " + string(d.Action)})
		}
	}
	return out[:min(len(out), maxDrift)]
}

// workloads reports the workloads and the scheduler's leader.
func (r *BundleReconciler) workloads(ctx context.Context, b *v1beta1.Bundle, wanted *config.Bundle, objects []component.Object) error {
	components := []v1beta1.ComponentStatus{}
	for _, o := range objects {
		c, err := r.component(ctx, o)
		if err != nil {
			return err
		}
		if c != nil {
			components = append(components, *c)
		}
	}
	b.Status.Components = components
	set := conditions(b)
	agents := componentNamed(components, "konnectivity-agent")
	switch {
	case !ptr.Deref(wanted.Konnectivity.Enabled, true):
		set(v1beta1.BundleTunnelAvailable, true, reasonDisabled, "the bundle has no tunnel")
	case agents.Ready > 0:
		set(v1beta1.BundleTunnelAvailable, true, reasonAvailable, "agents are ready")
	default:
		set(v1beta1.BundleTunnelAvailable, false, reasonNotReady, "no agent is ready: look at the Pods of konnectivity-agent")
	}
	return r.leader(ctx, b, wanted)
}

func componentNamed(all []v1beta1.ComponentStatus, name string) v1beta1.ComponentStatus {
	for _, c := range all {
		if c.Name == name {
			return c
		}
	}
	return v1beta1.ComponentStatus{}
}

// component returns the state of a workload, nil for other objects.
func (r *BundleReconciler) component(ctx context.Context, o component.Object) (*v1beta1.ComponentStatus, error) {
	key := client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetName()}
	switch o.(type) {
	case *appsv1.Deployment:
		d := &appsv1.Deployment{}
		err := r.Client.Get(ctx, key, d)
		return &v1beta1.ComponentStatus{Kind: "Deployment", Name: key.Name, Desired: ptr.Deref(d.Spec.Replicas, 0), Ready: d.Status.ReadyReplicas},
			client.IgnoreNotFound(err)
	case *appsv1.DaemonSet:
		d := &appsv1.DaemonSet{}
		err := r.Client.Get(ctx, key, d)
		return &v1beta1.ComponentStatus{Kind: "DaemonSet", Name: key.Name, Desired: d.Status.DesiredNumberScheduled, Ready: d.Status.NumberReady},
			client.IgnoreNotFound(err)
	}
	return nil, nil
}

// leader reports whether a replica of the scheduler holds its Lease.
func (r *BundleReconciler) leader(ctx context.Context, b *v1beta1.Bundle, wanted *config.Bundle) error {
	set, election := conditions(b), wanted.Scheduler.LeaderElection
	if !ptr.Deref(wanted.Scheduler.Enabled, true) || !ptr.Deref(election.LeaderElect, true) {
		set(v1beta1.BundleSchedulerLeading, true, reasonDisabled, "the bundle has no scheduler that elects a leader")
		return nil
	}
	lease := &coordinationv1.Lease{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: election.LeaseNamespace, Name: election.LeaseName}, lease)
	if err := client.IgnoreNotFound(err); err != nil {
		return err
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	expired := lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Add(2*election.LeaseDuration.Duration).Before(time.Now())
	if holder == "" || expired {
		set(v1beta1.BundleSchedulerLeading, false, reasonNoLeader, fmt.Sprintf("no replica renews Lease %s/%s: look at its Pods", election.LeaseNamespace, election.LeaseName))
		return nil
	}
	set(v1beta1.BundleSchedulerLeading, true, reasonLeading, holder+" leads")
	return nil
}

// summarise sets Ready from the other conditions.
func summarise(b *v1beta1.Bundle) {
	set := conditions(b)
	for _, name := range []string{v1beta1.BundleReconciled, v1beta1.BundleTunnelAvailable, v1beta1.BundleSchedulerLeading} {
		c := meta.FindStatusCondition(b.Status.Conditions, name)
		if c == nil || c.Status != metav1.ConditionTrue {
			set(v1beta1.BundleReady, false, ptr.Deref(c, metav1.Condition{Reason: "Unknown"}).Reason, "condition "+name+" is not True")
			return
		}
	}
	set(v1beta1.BundleReady, true, reasonAsWanted, "all conditions are True")
}

// conditions returns a function that sets a condition of a Bundle.
func conditions(b *v1beta1.Bundle) func(name string, ok bool, reason, message string) {
	return func(name string, ok bool, reason, message string) {
		status := metav1.ConditionFalse
		if ok {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
			Type: name, Status: status, Reason: reason, Message: truncated(message, 32768), ObservedGeneration: b.Generation,
		})
	}
}

func truncated(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n-3] + "..."
}
