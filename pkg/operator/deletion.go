// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// goesWith reports whether the objects go with the Bundle. A Bundle that the operator only observes
// leaves them, whatever its deletionPolicy.
func goesWith(b *v1beta1.Bundle) bool {
	return b.Spec.DeletionPolicy == v1beta1.DeletionDelete && b.Spec.ManagementPolicy != v1beta1.ManagementObserve
}

// finalize adds or removes the finalizer. Nothing is written if it is there, or not, as wanted.
func (r *BundleReconciler) finalize(ctx context.Context, b *v1beta1.Bundle, wanted bool) error {
	if controllerutil.ContainsFinalizer(b, v1beta1.FinalizerUninstall) == wanted {
		return nil
	}
	u := ofKind(kindBundle)
	u.SetName(b.Name)
	u.SetResourceVersion(b.ResourceVersion) // other clients have finalizers, too
	u.SetFinalizers(b.Finalizers)
	before := u.DeepCopy()
	if wanted {
		controllerutil.AddFinalizer(u, v1beta1.FinalizerUninstall)
	} else {
		controllerutil.RemoveFinalizer(u, v1beta1.FinalizerUninstall)
	}
	err := r.Client.Patch(ctx, u, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) {
		err = errGone
	}
	if err != nil {
		return fmt.Errorf("write the finalizer of Bundle %s: %w", b.Name, err)
	}
	b.ResourceVersion, b.Finalizers = u.GetResourceVersion(), u.GetFinalizers()
	return nil
}

// ending goes on with the deletion of a Bundle: it removes the objects if the Bundle says so, and
// then the finalizer.
func (r *BundleReconciler) ending(ctx context.Context, s stored) (ctrl.Result, error) {
	b := s.Bundle
	if !controllerutil.ContainsFinalizer(b, v1beta1.FinalizerUninstall) {
		return ctrl.Result{}, nil // all objects stay
	}
	if !goesWith(b) {
		return r.conflicts.ended(r.timing.orUsual().resyncReady, r.finalize(ctx, b, false))
	}
	left, failure := r.uninstall(ctx, s)
	switch {
	case meanwhile(failure) && r.conflicts.few():
		return r.conflicts.ended(resyncMeanwhile, failure)
	case left == nothing && failure == nil:
		if failure = r.finalize(ctx, b, false); failure == nil {
			r.event(b, corev1.EventTypeNormal, eventUninstalled, actionUninstall, "all objects are deleted")
		}
		return r.conflicts.ended(r.timing.orUsual().resyncReady, failure)
	case left == some && failure == nil:
		return r.conflicts.ended(resyncMeanwhile) // the next look finds whether this was all
	}
	return r.conflicts.ended(r.timing.orUsual().resyncNotReady, failure)
}

// remains says what a look has left of the objects.
type remains int

const (
	nothing remains = iota // the look found nothing to delete
	some                   // it deleted objects
	all                    // it may not delete yet
)

// uninstall deletes the objects, and says in the status how far it is.
func (r *BundleReconciler) uninstall(ctx context.Context, s stored) (remains, error) {
	b := s.Bundle
	runs, err := r.removals(ctx, s)
	if err != nil {
		return all, r.progress(ctx, b, v1beta1.ReasonFailed, err)
	}
	findings, err := install.PreflightUninstall(ctx, r.Config, runs...)
	if err != nil {
		return all, r.progress(ctx, b, v1beta1.ReasonFailed, err)
	}
	if len(findings) > 0 {
		var texts []string
		for _, f := range findings {
			texts = append(texts, f.String())
		}
		why := strings.Join(texts, "\n") + ", or set deletionPolicy: Orphan to keep all objects"
		return all, r.say(ctx, b, v1beta1.ReasonBlocked, why)
	}
	if !deletes(b) {
		if err := r.say(ctx, b, v1beta1.ReasonUninstalling, uninstalling); err != nil {
			return all, err
		}
	}
	left := nothing
	for _, run := range runs {
		result, err := install.Uninstall(ctx, r.Config, run)
		r.changed(b, result, actionUninstall)
		if len(result.Objects) > 0 {
			left = some
		}
		if blocked := (*install.BlockedError)(nil); errors.As(err, &blocked) {
			return all, r.say(ctx, b, v1beta1.ReasonBlocked, blocked.Error())
		}
		if isWaiting(ctx, err) {
			return all, r.say(ctx, b, v1beta1.ReasonUninstalling, waiting)
		}
		if err != nil {
			return all, r.progress(ctx, b, v1beta1.ReasonFailed, err)
		}
	}
	if left == nothing {
		return left, nil // the Bundle goes, and its status with it
	}
	return left, r.say(ctx, b, v1beta1.ReasonUninstalling, uninstalling)
}

// uninstalling is the message while the operator deletes.
const uninstalling = "the operator deletes what the Bundle brought, once no other run changes the cluster"

// deletes reports whether the status says already that the operator deletes, or tries to. A try that
// begins says nothing new: what it says would be written and told each time, as would what it ends with.
func deletes(b *v1beta1.Bundle) bool {
	c := meta.FindStatusCondition(b.Status.Conditions, v1beta1.BundleReconciled)
	return c != nil && c.ObservedGeneration == b.Generation && (c.Reason == v1beta1.ReasonUninstalling || c.Reason == v1beta1.ReasonFailed)
}

// removals delete what the Bundle brought, and the agents of TunnelPools. These go first: the
// Bundle's own agents are the last workload, which keeps the tunnel up. A Bundle that is
// not valid has what the inventory lists.
func (r *BundleReconciler) removals(ctx context.Context, s stored) ([]install.UninstallOptions, error) {
	objects := []component.Object{}
	if s.invalid == nil {
		rendered, err := install.Objects(ctx, r.Config, s.wanted, time.Now())
		if err != nil {
			return nil, err
		}
		objects = append(objects, rendered...)
	}
	run := install.UninstallOptions{
		Confirm: unchanged(r.Config, read(kindBundle, *s.Bundle)), KeepTunnel: true,
		KeepDefinitions: true, Wait: true, Timeout: r.timing.orUsual().apply, Objects: []component.Object{},
	}
	pools, own := run, run
	pools.Party, own.Objects = install.Pools, objects
	return []install.UninstallOptions{pools, own}, nil
}

// progress says why a look has failed, and returns that failure.
func (r *BundleReconciler) progress(ctx context.Context, b *v1beta1.Bundle, reason string, err error) error {
	if meanwhile(err) && r.conflicts.few() {
		return err
	}
	return errors.Join(err, r.say(ctx, b, reason, err.Error()))
}

// say sets condition Reconciled and those that follow from it, and writes the status.
func (r *BundleReconciler) say(ctx context.Context, b *v1beta1.Bundle, reason, message string) error {
	before := b.Status.DeepCopy()
	set := conditions(b)
	set(v1beta1.BundleReconciled, false, reason, message)
	switch reason {
	case v1beta1.ReasonUninstalling:
		set(v1beta1.BundleProgressing, true, reason, message)
	case v1beta1.ReasonBlocked:
		set(v1beta1.BundleProgressing, false, reason, "condition Reconciled says what to change")
	}
	r.certificatesValid(b)
	r.storedMigrated(b)
	summarize(b)
	b.Status.ObservedGeneration, b.Status.Version, b.Status.Drift = b.Generation, r.Version, nil
	if equality.Semantic.DeepEqual(before, &b.Status) {
		return nil
	}
	if err := writeStatus(ctx, r.Client, kindBundle, b); err != nil {
		return err
	}
	r.tell(b, before.Conditions, b.Status.Conditions)
	return nil
}
