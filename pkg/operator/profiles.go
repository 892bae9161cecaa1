// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	config "github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// verdict is whether a profile is accepted, and why.
type verdict struct {
	accepted        bool
	reason, message string
}

// withProfiles returns a bundle with all profiles that are valid together with it, and a
// verdict for each by name. Of two profiles with one schedulerName the older has the name, also if it is not
// valid: it may be running. One in the Bundle itself comes before all. Profiles that do not decode are invalid, by UID.
func withProfiles(b *config.Bundle, profiles []v1beta1.SchedulerProfile, invalid map[types.UID]error) (*config.Bundle, map[string]verdict) {
	verdicts := map[string]verdict{}
	profiles = slices.Clone(profiles)
	slices.SortFunc(profiles, func(a, b v1beta1.SchedulerProfile) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	owners := map[string]string{}
	own := func(p *v1beta1.SchedulerProfile) {
		if name := p.Spec.SchedulerName; owners[name] == "" {
			owners[name] = "SchedulerProfile " + p.Name
		}
	}
	for _, name := range b.Scheduler.ProfileNames() {
		owners[name] = "Bundle " + bundle.ObjectName
	}
	for i := range profiles {
		p := &profiles[i]
		switch owner := owners[p.Spec.SchedulerName]; {
		case p.DeletionTimestamp != nil:
			continue
		case invalid[p.UID] != nil:
			verdicts[p.Name] = verdict{false, v1beta1.ReasonInvalid, invalid[p.UID].Error()}
			own(p)
		case !ptr.Deref(b.Scheduler.Enabled, true):
			verdicts[p.Name] = verdict{false, v1beta1.ReasonDisabled, "the Bundle has no second scheduler: set scheduler.enabled: true"}
		case owner != "":
			verdicts[p.Name] = verdict{false, v1beta1.ReasonNameConflict, fmt.Sprintf("%s has schedulerName %s: create a profile of another name", owner, p.Spec.SchedulerName)}
		default:
			own(p)
			with, err := withProfile(b, &p.Spec)
			if err != nil {
				verdicts[p.Name] = verdict{false, v1beta1.ReasonInvalid, err.Error()}
				continue
			}
			b = with
			verdicts[p.Name] = verdict{true, v1beta1.ReasonAccepted, "the profile is valid, and its name is free"}
		}
	}
	return b, verdicts
}

// withProfile returns a copy with one more profile, if the result is valid.
func withProfile(b *config.Bundle, spec *v1beta1.SchedulerProfileSpec) (*config.Bundle, error) {
	b = b.DeepCopy()
	s, name := &b.Scheduler, spec.SchedulerName
	add := func(p config.BuiltInProfiles) { s.MoreBuiltInProfiles = append(s.MoreBuiltInProfiles, p) }
	switch spec.Strategy {
	case v1beta1.StrategyStandard:
		add(config.BuiltInProfiles{Standard: &config.StandardProfile{SchedulerName: name}})
	case v1beta1.StrategyBinpack:
		p := ptr.Deref(spec.Binpack, v1beta1.BinpackStrategy{})
		add(config.BuiltInProfiles{Binpack: &config.BinpackProfile{
			SchedulerName: name, PercentageOfNodesToScore: p.PercentageOfNodesToScore, Resources: p.Resources, Weight: p.Weight,
		}})
	case v1beta1.StrategySpread:
		p := ptr.Deref(spec.Spread, v1beta1.SpreadStrategy{})
		add(config.BuiltInProfiles{Spread: &config.SpreadProfile{
			SchedulerName: name, PercentageOfNodesToScore: p.PercentageOfNodesToScore, TopologyKeys: p.TopologyKeys, MaxSkew: p.MaxSkew, Weight: p.Weight,
		}})
	case v1beta1.StrategyBatch:
		p := ptr.Deref(spec.Batch, v1beta1.BatchStrategy{})
		add(config.BuiltInProfiles{Batch: &config.BatchProfile{
			SchedulerName: name, PercentageOfNodesToScore: p.PercentageOfNodesToScore, Placement: p.Placement,
		}})
	case v1beta1.StrategyRaw:
		if spec.Raw == nil {
			return nil, errors.New("spec.raw is missing")
		}
		raw, err := decodeProfile(spec.Raw.Raw)
		if err != nil {
			return nil, fmt.Errorf("spec.raw: %w", err)
		}
		if raw.SchedulerName != nil {
			return nil, errors.New("spec.raw.schedulerName is set: spec.schedulerName is the name, so remove it")
		}
		raw.SchedulerName = &name
		s.Profiles = append(s.Profiles, raw)
	default:
		return nil, fmt.Errorf("spec.strategy %q is unknown", spec.Strategy)
	}
	b = b.Defaulted()
	return b, bundle.Validate(b).ToAggregate()
}

// ProfileReconciler reports on SchedulerProfiles. [BundleReconciler] applies them.
type ProfileReconciler struct {
	// Client reads the objects and writes the status.
	Client client.Client
	// Bounds are what objects may ask for.
	Bounds operator.Bounds
	// Events may be nil.
	Events    events.EventRecorder
	timing    *timing // nil is usual
	conflicts conflicts
}

// Reconcile implements reconcile.Reconciler, for all profiles.
func (r *ProfileReconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	profiles, invalid, err := readProfiles(ctx, r.Client)
	if err != nil || len(profiles) == 0 {
		return ctrl.Result{}, err
	}
	verdicts, programmed, err := r.look(ctx, profiles, invalid)
	if err != nil {
		return ctrl.Result{}, err
	}
	var failures []error
	for i := range profiles {
		p := &profiles[i]
		v, ok := verdicts[p.Name]
		if !ok {
			continue // is being deleted
		}
		failures = append(failures, r.report(ctx, p, v, programmed))
	}
	if !programmed.accepted {
		return r.conflicts.ended(r.timing.orUsual().resyncNotReady, failures...)
	}
	return r.conflicts.ended(r.timing.orUsual().resyncReady, failures...)
}

// look returns a verdict on each profile, and whether the scheduler runs with those that are
// accepted.
func (r *ProfileReconciler) look(ctx context.Context, profiles []v1beta1.SchedulerProfile, invalid map[types.UID]error) (map[string]verdict, verdict, error) {
	all := func(v verdict) (map[string]verdict, verdict, error) {
		verdicts := map[string]verdict{}
		for i := range profiles {
			verdicts[profiles[i].Name] = v
		}
		return verdicts, v, nil
	}
	b, err := readBundle(ctx, r.Client, r.Bounds)
	if apierrors.IsNotFound(err) {
		return all(verdict{false, v1beta1.ReasonNoBundle, "there is no Bundle default, so nothing is applied: create it"})
	}
	if err != nil {
		return nil, verdict{}, err
	}
	if b.invalid != nil {
		return all(verdict{false, v1beta1.ReasonInvalidBundle, "the Bundle is not valid: " + b.invalid.Error()})
	}
	wanted, verdicts := withProfiles(b.wanted, profiles, invalid)
	programmed, err := r.programmed(ctx, wanted)
	return verdicts, programmed, err
}

// programmed reports whether all replicas of the scheduler run with a bundle's configuration,
// and one of them leads.
func (r *ProfileReconciler) programmed(ctx context.Context, wanted *config.Bundle) (verdict, error) {
	objects, err := scheduler.Objects(wanted)
	if err != nil {
		return verdict{}, fmt.Errorf("render the second scheduler: %w", err)
	}
	for _, o := range objects {
		d, ok := o.(*appsv1.Deployment)
		if !ok || d.Name != wanted.Scheduler.Name {
			continue
		}
		live := &appsv1.Deployment{}
		if err := r.Client.Get(ctx, client.ObjectKeyFromObject(d), live); client.IgnoreNotFound(err) != nil {
			return verdict{}, err
		}
		switch {
		case !contains(live.Spec.Template.Annotations, d.Spec.Template.Annotations):
			return verdict{false, v1beta1.ReasonNotApplied, "the second scheduler has another configuration: look at the conditions of Bundle default"}, nil
		case !deploymentDone(live):
			return verdict{false, v1beta1.ReasonRollingOut, fmt.Sprintf("Deployment %s/%s rolls out", live.Namespace, live.Name)}, nil
		}
		return r.leads(ctx, wanted)
	}
	return verdict{false, v1beta1.ReasonNotApplied, "the second scheduler is a static Pod: write its files on the control plane nodes with fairlead render -o dir"}, nil
}

func (r *ProfileReconciler) leads(ctx context.Context, wanted *config.Bundle) (verdict, error) {
	e := wanted.Scheduler.LeaderElection
	if ptr.Deref(e.LeaderElect, true) {
		lease := &coordinationv1.Lease{}
		if err := r.Client.Get(ctx, client.ObjectKey{Namespace: e.LeaseNamespace, Name: e.LeaseName}, lease); client.IgnoreNotFound(err) != nil {
			return verdict{}, err
		}
		if holder := leaderOf(lease, e.LeaseDuration.Duration); holder == "" {
			return verdict{false, v1beta1.ReasonNoLeader, fmt.Sprintf("no replica renews Lease %s/%s: look at its Pods", e.LeaseNamespace, e.LeaseName)}, nil
		}
	}
	return verdict{true, v1beta1.ReasonProgrammed, "the second scheduler runs with the profile"}, nil
}

// contains reports whether all has each of some.
func contains(all, some map[string]string) bool {
	for key, value := range some {
		if all[key] != value {
			return false
		}
	}
	return true
}

// report writes the status of one profile if it differs.
func (r *ProfileReconciler) report(ctx context.Context, p *v1beta1.SchedulerProfile, v, programmed verdict) error {
	before := p.Status.DeepCopy()
	set := setter(&p.Status.Conditions, p.Generation)
	set(v1beta1.ProfileAccepted, v.accepted, v.reason, v.message)
	if v.accepted {
		set(v1beta1.ProfileProgrammed, programmed.accepted, programmed.reason, programmed.message)
	} else {
		set(v1beta1.ProfileProgrammed, false, v1beta1.ReasonNotAccepted, "the profile is not accepted")
	}
	p.Status.ObservedGeneration = p.Generation
	if equality.Semantic.DeepEqual(before, &p.Status) {
		return nil
	}
	if err := writeStatus(ctx, r.Client, kindProfile, p); err != nil {
		return err
	}
	if old := meta.FindStatusCondition(before.Conditions, v1beta1.ProfileAccepted); !v.accepted && r.Events != nil && (old == nil || old.Reason != v.reason) {
		r.Events.Eventf(p, nil, corev1.EventTypeWarning, v.reason, actionObserve, "%s", truncated(v.message, maxNote))
	}
	return nil
}
