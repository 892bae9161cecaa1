// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	config "github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// Limits of the status, as in its schema.
const (
	maxDrift   = 32
	maxMessage = 1024
	maxName    = 512
)

// BundleReconciler applies the Bundle and reports what it sees.
type BundleReconciler struct {
	// Client reads the Bundle and the workloads and writes the status.
	Client client.Client
	// Config is the connection of pkg/install.
	Config *rest.Config
	// Version of the operator.
	Version string
	// Events may be nil.
	Events events.EventRecorder
	// IgnorePreflight and Bounds are those of Options.
	IgnorePreflight []string
	Bounds          operator.Bounds
	// certificates of the webhook; nil if it serves none.
	certificates *certificates
	// migration of stored objects; nil if it runs none.
	migration *migration
	timing    *timing // nil is usual
	conflicts conflicts
}

// Reconcile implements reconcile.Reconciler.
func (r *BundleReconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	b, err := readBundle(ctx, r.Client, r.Bounds)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if b.DeletionTimestamp != nil {
		return r.ending(ctx, b)
	}
	if err := r.finalize(ctx, b.Bundle, goesWith(b.Bundle)); err != nil {
		return r.conflicts.ended(resyncMeanwhile, err)
	}
	before := b.Status.DeepCopy()
	failure := r.observe(ctx, b)
	if meanwhile(failure) && r.conflicts.few() {
		return r.conflicts.ended(resyncMeanwhile, failure)
	}
	r.certificatesValid(b.Bundle)
	r.storedMigrated(b.Bundle)
	summarize(b.Bundle)
	b.Status.ObservedGeneration, b.Status.Version = b.Generation, r.Version
	if !equality.Semantic.DeepEqual(before, &b.Status) {
		if err := writeStatus(ctx, r.Client, kindBundle, b.Bundle); err != nil {
			return r.conflicts.ended(resyncMeanwhile, err)
		}
	}
	r.tell(b.Bundle, before.Conditions, b.Status.Conditions)
	if meta.IsStatusConditionTrue(b.Status.Conditions, v1beta1.BundleReady) {
		return r.conflicts.ended(r.timing.orUsual().resyncReady, failure)
	}
	return r.conflicts.ended(r.timing.orUsual().resyncNotReady, failure)
}

// observe fills in the status, and applies the bundle if its policy says so. It returns
// errors that another try may cure.
func (r *BundleReconciler) observe(ctx context.Context, s stored) error {
	b := s.Bundle
	set := conditions(b)
	if s.invalid != nil {
		b.Status.Drift = nil
		reason := v1beta1.ReasonInvalidBundle
		if bounds := (*boundsError)(nil); errors.As(s.invalid, &bounds) {
			reason = v1beta1.ReasonBlocked
		}
		set(v1beta1.BundleReconciled, false, reason, s.invalid.Error())
		return r.unknown(ctx, b) // no other try cures what is invalid
	}
	profiles, invalid, err := readProfiles(ctx, r.Client)
	if err != nil {
		return err
	}
	wanted, verdicts := withProfiles(s.wanted, profiles, invalid)
	why, running, err := held(ctx, r.Client, wanted, profiles, verdicts)
	if err != nil {
		set(v1beta1.BundleReconciled, false, v1beta1.ReasonFailed, err.Error())
		return err
	}
	// A scheduler that is off has no profiles, and its settings do not count.
	if errs := config.ValidateAssigned(wanted, running); len(errs) > 0 && ptr.Deref(wanted.Scheduler.Enabled, true) {
		b.Status.Drift = nil
		set(v1beta1.BundleReconciled, false, v1beta1.ReasonInvalidBundle, errs.ToAggregate().Error()+": correct the assignment, or create a valid SchedulerProfile of this name")
		return r.watch(ctx, b, wanted)
	}
	objects, err := install.Objects(ctx, r.Config, wanted, time.Now())
	if err != nil {
		set(v1beta1.BundleReconciled, false, v1beta1.ReasonFailed, err.Error())
		return err
	}
	confirm := unchanged(r.Config, read(kindBundle, *b), read(kindProfile, profiles...))
	failure := r.apply(ctx, b, wanted, objects, why, confirm)
	if err := r.controlPlane(ctx, b, wanted); err != nil && failure == nil {
		failure = err
	}
	if err := r.workloads(ctx, b, wanted, objects); err != nil && failure == nil {
		failure = err
	}
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
	return bundle.LoadOpen(file)
}

// refused returns why the bundle must not be applied, as `fairlead install` would refuse it: for example,
// without agents, kube-apiserver would reach no node. It is "" if nothing speaks against it.
func (r *BundleReconciler) refused(ctx context.Context, b *v1beta1.Bundle, wanted *config.Bundle) (string, error) {
	findings, err := install.Preflight(ctx, r.Config, wanted, false)
	ignored := append(strings.Split(b.Annotations[v1beta1.AnnotationIgnorePreflight], ","), r.IgnorePreflight...)
	for i := range ignored {
		ignored[i] = strings.TrimSpace(ignored[i])
	}
	var texts []string
	for _, f := range findings {
		switch {
		case f.Warning:
		case f.ID == install.FindingInUse:
			texts = append(texts, f.String())
		case !slices.Contains(ignored, f.ID):
			texts = append(texts, fmt.Sprintf("%s\n(to ignore this check, set annotation %s: %s)", f, v1beta1.AnnotationIgnorePreflight, f.ID))
		}
	}
	return strings.Join(texts, "\n"), err
}

// apply compares first: in the steady state the operator writes nothing. If held is not "", the second scheduler keeps
// its configuration. What confirm does not confirm is not applied.
func (r *BundleReconciler) apply(ctx context.Context, b *v1beta1.Bundle, wanted *config.Bundle, objects []component.Object, held string, confirm func(context.Context) error) error {
	set := conditions(b)
	failed := func(err error) error {
		set(v1beta1.BundleReconciled, false, v1beta1.ReasonFailed, err.Error())
		return err
	}
	objects, unready, err := r.withoutUnready(ctx, objects)
	if err != nil {
		return failed(err)
	}
	asWanted := "all objects are as the bundle says"
	if len(unready) > 0 {
		asWanted += ", except that an APIService waits for its server: " + unready[0].Name
	}
	options := install.Options{Leases: install.LeasesOf(wanted), Timeout: r.timing.orUsual().apply, Keep: unready, KeepTunnel: true, Confirm: confirm}
	if held != "" {
		var left []install.Ref
		objects, left = withoutConfiguration(wanted, objects)
		options.Keep = append(options.Keep, left...)
	}
	options.Recompute = func(ctx context.Context) ([]component.Object, error) {
		again, err := install.Objects(ctx, r.Config, wanted, time.Now())
		objects = slices.DeleteFunc(again, func(o component.Object) bool { return slices.Contains(options.Keep, install.RefTo(o)) })
		return objects, err
	}
	applied := func() {
		setCertificates(b, objects)
		if held != "" {
			set(v1beta1.BundleReconciled, false, v1beta1.ReasonBlocked, held)
		} else {
			set(v1beta1.BundleReconciled, true, v1beta1.ReasonAsWanted, asWanted)
		}
	}
	comparison, err := install.DiffOf(ctx, r.Config, options, objects)
	if err != nil {
		return failed(err)
	}
	b.Status.Drift = drift(comparison)
	observes := b.Spec.ManagementPolicy == v1beta1.ManagementObserve
	switch {
	case isAsWanted(comparison, observes):
		applied()
		return nil
	case observes:
		set(v1beta1.BundleReconciled, false, v1beta1.ReasonDrift, fmt.Sprintf(
			"%d objects or fields differ: see status.drift. Set managementPolicy: Enforce, or run fairlead install", len(b.Status.Drift)))
		return nil
	}
	done, err := r.enforce(ctx, b, wanted, objects, options)
	if err != nil {
		return failed(err)
	}
	if done {
		b.Status.Drift = nil
		applied()
	}
	return nil
}

// isAsWanted reports whether there is nothing to apply. Objects that are as wanted and that another client has made are
// adopted, unless the operator only observes: otherwise it could neither change nor delete them later.
func isAsWanted(c *install.Comparison, observes bool) bool {
	return len(c.Differences) == 0 && len(c.Problems) == 0 && (observes || c.Adoptions == 0)
}

// enforce applies the objects. If it must not, or has to wait, it says so in the status, and is not done.
func (r *BundleReconciler) enforce(ctx context.Context, b *v1beta1.Bundle, wanted *config.Bundle, objects []component.Object, options install.Options) (done bool, err error) {
	set := conditions(b)
	why, err := r.refused(ctx, b, wanted)
	if err != nil {
		return false, err
	}
	if why != "" {
		set(v1beta1.BundleReconciled, false, v1beta1.ReasonBlocked, why)
		return false, nil
	}
	result, err := install.Apply(ctx, r.Config, objects, options)
	r.changed(b, result, actionApply)
	blocked := (*install.BlockedError)(nil)
	switch {
	case errors.As(err, &blocked):
		set(v1beta1.BundleReconciled, false, v1beta1.ReasonBlocked, blocked.Error())
	case isWaiting(ctx, err):
		set(v1beta1.BundleReconciled, false, v1beta1.ReasonWaiting, waiting)
	default:
		return err == nil, err
	}
	return false, nil
}

// withoutUnready leaves out the APIService whose server is not ready, and returns a reference to it: it
// is not created yet, and stays if it is there. To wait for it would keep the lock from TunnelPools.
func (r *BundleReconciler) withoutUnready(ctx context.Context, objects []component.Object) (now []component.Object, unready []install.Ref, err error) {
	ready := false
	for _, o := range objects {
		if o.GetName() == config.TunnelAPIName {
			c, _, err := r.component(ctx, o)
			if err != nil {
				return nil, nil, err
			}
			ready = ready || c != nil && c.Ready > 0
		}
	}
	for _, o := range objects {
		if _, registers := o.(*apiregistrationv1.APIService); registers && !ready {
			unready = append(unready, install.RefTo(o))
			continue
		}
		now = append(now, o)
	}
	return now, unready, nil
}

// drift lists the fields with other owners, and the other objects that differ.
func drift(c *install.Comparison) []v1beta1.DriftedField {
	var out []v1beta1.DriftedField
	listed := map[string]bool{}
	for _, p := range c.Problems {
		listed[p.Object.String()] = true
		for _, conflict := range p.Conflicts {
			out = append(out, v1beta1.DriftedField{
				Object: truncated(p.Object.String(), maxName), Field: truncated(conflict.Field, maxName), Owner: truncated(conflict.Owner, 256),
				Message: truncated(fmt.Sprintf("is %s, the bundle says %s", conflict.Live, conflict.Wanted), maxMessage),
			})
		}
		if len(p.Conflicts) == 0 {
			out = append(out, v1beta1.DriftedField{Object: truncated(p.Object.String(), maxName), Message: truncated(p.Message, maxMessage)})
		}
	}
	for _, d := range c.Differences {
		if object := d.Ref.String(); !listed[object] {
			out = append(out, v1beta1.DriftedField{Object: truncated(object, maxName), Message: "would be " + string(d.Action)})
		}
	}
	return out[:min(len(out), maxDrift)]
}
