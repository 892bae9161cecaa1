// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	config "github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// workloads reports the workloads and the scheduler's leader.
func (r *BundleReconciler) workloads(ctx context.Context, b *v1beta1.Bundle, wanted *config.Bundle, objects []component.Object) error {
	components, waits := []v1beta1.ComponentStatus{}, ""
	for _, o := range objects {
		c, rolling, err := r.component(ctx, o)
		if err != nil {
			return err
		}
		if c != nil {
			components = append(components, *c)
		}
		if rolling && waits == "" {
			waits = fmt.Sprintf("%s %s rolls out: %d of %d Pods are ready", c.Kind, c.Name, c.Ready, c.Desired)
		}
	}
	b.Status.Components = components
	set := conditions(b)
	switch reconciled := meta.FindStatusCondition(b.Status.Conditions, v1beta1.BundleReconciled); {
	case reconciled != nil && (reconciled.Reason == v1beta1.ReasonFailed || reconciled.Reason == v1beta1.ReasonWaiting): // summarize says so; to set it twice would write the status each time
	case waits != "":
		set(v1beta1.BundleProgressing, true, v1beta1.ReasonRollingOut, waits)
	default:
		set(v1beta1.BundleProgressing, false, v1beta1.ReasonRolledOut, "all workloads run what was applied")
	}
	agents := componentNamed(components, "konnectivity-agent")
	switch {
	case !ptr.Deref(wanted.Konnectivity.Enabled, true):
		set(v1beta1.BundleTunnelAvailable, true, v1beta1.ReasonDisabled, "the bundle has no tunnel")
	case agents.Ready > 0:
		set(v1beta1.BundleTunnelAvailable, true, v1beta1.ReasonAvailable, "agents are ready")
	default:
		set(v1beta1.BundleTunnelAvailable, false, v1beta1.ReasonNotReady, "no agent is ready: look at the Pods of konnectivity-agent")
	}
	return r.leader(ctx, b, wanted)
}

// watch reports on the cluster while the assignments are not valid. They have no part in what is reported.
func (r *BundleReconciler) watch(ctx context.Context, b *v1beta1.Bundle, wanted *config.Bundle) error {
	wanted = wanted.DeepCopy()
	wanted.Scheduler.Assignments = nil
	objects, err := install.Objects(ctx, r.Config, wanted, time.Now())
	if err != nil {
		return err
	}
	return errors.Join(r.controlPlane(ctx, b, wanted), r.workloads(ctx, b, wanted, objects))
}

// unknown reports on the workloads of the last valid Bundle, and that of the rest nothing is known: it depends on what the Bundle
// says, which is not valid.
func (r *BundleReconciler) unknown(ctx context.Context, b *v1beta1.Bundle) error {
	const why = "the Bundle is not valid: see condition Reconciled"
	for _, name := range []string{v1beta1.BundleTunnelAvailable, v1beta1.BundleSchedulerLeading, v1beta1.BundleControlPlaneReady} {
		setUnknown(b, name, v1beta1.ReasonInvalidBundle, why)
	}
	conditions(b)(v1beta1.BundleProgressing, false, v1beta1.ReasonInvalidBundle, why)
	var components []v1beta1.ComponentStatus
	for _, known := range b.Status.Components {
		named := metav1.ObjectMeta{Namespace: cmp.Or(b.Spec.Namespace, config.DefaultNamespace), Name: known.Name}
		var o component.Object = &appsv1.Deployment{ObjectMeta: named}
		if known.Kind == "DaemonSet" {
			o = &appsv1.DaemonSet{ObjectMeta: named}
		}
		c, _, err := r.component(ctx, o)
		if err != nil {
			return err
		}
		components = append(components, *c)
	}
	b.Status.Components = components
	return nil
}

func componentNamed(all []v1beta1.ComponentStatus, name string) v1beta1.ComponentStatus {
	for _, c := range all {
		if c.Name == name {
			return c
		}
	}
	return v1beta1.ComponentStatus{}
}

// component returns the state of a workload and whether it rolls out, nil for other objects.
func (r *BundleReconciler) component(ctx context.Context, o component.Object) (c *v1beta1.ComponentStatus, rolling bool, err error) {
	key := client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetName()}
	switch o.(type) {
	case *appsv1.Deployment:
		d := &appsv1.Deployment{}
		err = r.Client.Get(ctx, key, d)
		return &v1beta1.ComponentStatus{Kind: "Deployment", Name: key.Name, Desired: ptr.Deref(d.Spec.Replicas, 0), Ready: d.Status.ReadyReplicas, Image: imageOf(&d.Spec.Template)},
			!deploymentDone(d), client.IgnoreNotFound(err)
	case *appsv1.DaemonSet:
		d := &appsv1.DaemonSet{}
		err = r.Client.Get(ctx, key, d)
		return &v1beta1.ComponentStatus{Kind: "DaemonSet", Name: key.Name, Desired: d.Status.DesiredNumberScheduled, Ready: d.Status.NumberReady, Image: imageOf(&d.Spec.Template)},
			!daemonSetDone(d), client.IgnoreNotFound(err)
	}
	return nil, false, nil
}

// imageOf is the image of a template's program, "" if there is no template.
func imageOf(t *corev1.PodTemplateSpec) string {
	if len(t.Spec.Containers) == 0 {
		return ""
	}
	return truncated(t.Spec.Containers[0].Image, maxMessage)
}

// deploymentDone reports whether all Pods that should run do, and are of the newest template.
func deploymentDone(d *appsv1.Deployment) bool {
	n := ptr.Deref(d.Spec.Replicas, 1)
	return d.UID != "" && d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas == n && d.Status.Replicas == n && d.Status.AvailableReplicas == n
}

func daemonSetDone(d *appsv1.DaemonSet) bool {
	n := d.Status.DesiredNumberScheduled
	return d.UID != "" && d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedNumberScheduled == n && d.Status.NumberAvailable == n
}

// leader reports whether a replica of the scheduler holds its Lease.
func (r *BundleReconciler) leader(ctx context.Context, b *v1beta1.Bundle, wanted *config.Bundle) error {
	set, election := conditions(b), wanted.Scheduler.LeaderElection
	if !ptr.Deref(wanted.Scheduler.Enabled, true) || !ptr.Deref(election.LeaderElect, true) {
		set(v1beta1.BundleSchedulerLeading, true, v1beta1.ReasonDisabled, "the bundle has no scheduler that elects a leader")
		return nil
	}
	lease := &coordinationv1.Lease{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: election.LeaseNamespace, Name: election.LeaseName}, lease)
	if err := client.IgnoreNotFound(err); err != nil {
		return err
	}
	holder := leaderOf(lease, election.LeaseDuration.Duration)
	if holder == "" {
		set(v1beta1.BundleSchedulerLeading, false, v1beta1.ReasonNoLeader, fmt.Sprintf("no replica renews Lease %s/%s: look at its Pods", election.LeaseNamespace, election.LeaseName))
		return nil
	}
	set(v1beta1.BundleSchedulerLeading, true, v1beta1.ReasonLeading, holder+" leads")
	return nil
}

// leaderOf is who holds a Lease, "" if it was not renewed for twice its duration.
func leaderOf(lease *coordinationv1.Lease, duration time.Duration) string {
	if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Add(2*duration).Before(time.Now()) {
		return ""
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}
