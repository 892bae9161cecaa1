// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
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
	// certificates of the webhook; nil if it serves none.
	certificates *certificates
	conflicts    conflicts
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
	if meanwhile(failure) && r.conflicts.few() {
		return r.conflicts.ended(resyncMeanwhile, failure)
	}
	r.certificatesValid(b)
	summarise(b)
	b.Status.ObservedGeneration, b.Status.Version = b.Generation, r.Version
	if !equality.Semantic.DeepEqual(before, &b.Status) {
		if err := writeStatus(ctx, r.Client, "Bundle", b); err != nil {
			return r.conflicts.ended(resyncMeanwhile, err)
		}
	}
	r.tell(b, before.Conditions, b.Status.Conditions)
	if meta.IsStatusConditionTrue(b.Status.Conditions, v1beta1.BundleReady) {
		return r.conflicts.ended(resyncReady, failure)
	}
	return r.conflicts.ended(resyncNotReady, failure)
}

// observe fills in the status, and applies the bundle if its policy says so. It returns
// errors that another try may cure.
func (r *BundleReconciler) observe(ctx context.Context, b *v1beta1.Bundle) error {
	set := conditions(b)
	wanted, err := load(b)
	if err != nil {
		b.Status.Drift = nil
		set(v1beta1.BundleReconciled, false, v1beta1.ReasonInvalidBundle, err.Error())
		return nil
	}
	profiles := &v1beta1.SchedulerProfileList{}
	if err := r.Client.List(ctx, profiles); err != nil {
		return err
	}
	wanted, _ = withProfiles(wanted, profiles.Items)
	objects, err := install.Objects(ctx, r.Config, wanted, time.Now())
	if err != nil {
		set(v1beta1.BundleReconciled, false, v1beta1.ReasonFailed, err.Error())
		return err
	}
	failure := r.apply(ctx, b, wanted, objects)
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
	objects, unready, err := r.withoutUnready(ctx, objects)
	if err != nil {
		set(v1beta1.BundleReconciled, false, v1beta1.ReasonFailed, err.Error())
		return err
	}
	asWanted := "all objects are as the bundle says"
	if len(unready) > 0 {
		asWanted += ", except that an APIService waits for its server: " + strings.Join(unready, ", ")
	}
	options := install.Options{Leases: install.LeasesOf(wanted), Timeout: applyTimeout, Keep: unready}
	comparison, err := install.DiffOf(ctx, r.Config, options, objects)
	if err != nil {
		set(v1beta1.BundleReconciled, false, v1beta1.ReasonFailed, err.Error())
		return err
	}
	b.Status.Drift = drift(comparison)
	switch {
	case len(comparison.Differences) == 0 && len(comparison.Problems) == 0:
		set(v1beta1.BundleReconciled, true, v1beta1.ReasonAsWanted, asWanted)
		return nil
	case b.Spec.ManagementPolicy == v1beta1.ManagementObserve:
		set(v1beta1.BundleReconciled, false, v1beta1.ReasonDrift, fmt.Sprintf(
			"%d objects or fields differ: see status.drift. Set managementPolicy: Enforce, or run fairlead install", len(b.Status.Drift)))
		return nil
	}
	why, err := r.inUse(ctx, wanted)
	if err != nil {
		set(v1beta1.BundleReconciled, false, v1beta1.ReasonFailed, err.Error())
		return err
	}
	if why != "" {
		set(v1beta1.BundleReconciled, false, v1beta1.ReasonBlocked, why)
		return nil
	}
	result, err := install.Apply(ctx, r.Config, objects, options)
	r.changed(b, result)
	if blocked := (*install.BlockedError)(nil); errors.As(err, &blocked) {
		set(v1beta1.BundleReconciled, false, v1beta1.ReasonBlocked, blocked.Error())
		return nil
	}
	if err != nil {
		set(v1beta1.BundleReconciled, false, v1beta1.ReasonFailed, err.Error())
		return err
	}
	b.Status.Drift = nil
	set(v1beta1.BundleReconciled, true, v1beta1.ReasonAsWanted, asWanted)
	return nil
}

// withoutUnready leaves out the APIService whose server is not ready, and returns its name: it
// is not created yet, and stays if it is there. To wait for it would keep the lock from TunnelPools.
func (r *BundleReconciler) withoutUnready(ctx context.Context, objects []component.Object) (now []component.Object, unready []string, err error) {
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
			unready = append(unready, o.GetName())
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
