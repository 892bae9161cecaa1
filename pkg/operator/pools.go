// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	config "github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

const (
	// poolPrefix of the workloads' names.
	poolPrefix = konnectivity.AgentName + "-pool-"
	// defaultPoolReplicas of a pool that sets none.
	defaultPoolReplicas = 2
)

// PoolReconciler runs the agents of TunnelPools. They are applied apart from the Bundle's
// objects, with an inventory of their own, so that `fairlead install` does not delete them.
type PoolReconciler struct {
	// Client reads the objects and writes the status.
	Client client.Client
	// Bounds are what objects may ask for.
	Bounds operator.Bounds
	// Config is the connection of pkg/install.
	Config *rest.Config
	// Events may be nil.
	Events    events.EventRecorder
	timing    *timing // nil is usual
	conflicts conflicts
}

// Reconcile implements reconcile.Reconciler, for all pools.
func (r *PoolReconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	pools, invalid, err := readPools(ctx, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	b, err := readBundle(ctx, r.Client, r.Bounds)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	refused := verdict{false, v1beta1.ReasonNoBundle, "there is no Bundle default, so nothing is applied: create it"}
	if err == nil {
		switch {
		case b.DeletionTimestamp != nil:
			refused.message = "the Bundle is being deleted, so nothing is applied"
		case b.invalid != nil:
			refused = verdict{false, v1beta1.ReasonInvalidBundle, "the Bundle is not valid: " + b.invalid.Error()}
		case !ptr.Deref(b.wanted.Konnectivity.Enabled, true):
			refused = verdict{false, v1beta1.ReasonDisabled, "the Bundle has no tunnel: set konnectivity.enabled: true"}
		default:
			return r.reconcile(ctx, b.Bundle, pools, invalid)
		}
	}
	// Agents that run are left alone: to stop them may cut the tunnel.
	var failures []error
	for i := range pools {
		failures = append(failures, r.report(ctx, &pools[i], refused))
	}
	return r.conflicts.ended(r.timing.orUsual().resyncReady, failures...)
}

// reconcile applies the agents of all pools that a valid Bundle allows.
func (r *PoolReconciler) reconcile(ctx context.Context, b *v1beta1.Bundle, pools []v1beta1.TunnelPool, undecoded map[types.UID]error) (ctrl.Result, error) {
	verdicts := make([]verdict, len(pools))
	var objects []component.Object
	var keep []install.Ref // workloads whose agents stay as they are: to stop them may cut the tunnel
	for i := range pools {
		if pools[i].DeletionTimestamp != nil {
			if slices.Contains(pools[i].Finalizers, metav1.FinalizerOrphanDependents) {
				keep = append(keep, poolRefs(pools[i].Namespace, poolPrefix+pools[i].Name)...)
			}
			continue
		}
		o, err := component.Object(nil), undecoded[pools[i].UID]
		if err == nil {
			o, err = poolObject(b, &pools[i], r.Bounds)
		}
		if err != nil {
			verdicts[i] = verdict{false, v1beta1.ReasonInvalid, err.Error()}
			keep = append(keep, poolRefs(pools[i].Namespace, poolPrefix+pools[i].Name)...)
			continue
		}
		verdicts[i] = verdict{true, v1beta1.ReasonAccepted, "agents run as the pool says"}
		objects = append(objects, o)
	}
	outcomes, failure := r.apply(ctx, b, objects, keep, unchanged(r.Config, read(kindBundle, *b), read(kindPool, pools...)))
	if meanwhile(failure) && r.conflicts.few() {
		return r.conflicts.ended(resyncMeanwhile, failure)
	}
	failures := []error{failure}
	for i := range pools {
		if outcome, found := outcomes[poolPrefix+pools[i].Name]; found && verdicts[i].accepted {
			verdicts[i] = outcome
		}
		failures = append(failures, r.report(ctx, &pools[i], verdicts[i]))
	}
	if len(outcomes) > 0 {
		return r.conflicts.ended(r.timing.orUsual().resyncNotReady, failures...)
	}
	return r.conflicts.ended(r.timing.orUsual().resyncReady, failures...)
}

// poolObject is the workload of a pool: the Bundle's agents with what the pool sets.
func poolObject(b *v1beta1.Bundle, pool *v1beta1.TunnelPool, bounds operator.Bounds) (component.Object, error) {
	if problems := validation.IsValidLabelValue(pool.Name); len(problems) > 0 {
		return nil, fmt.Errorf("the name %q cannot be a label's value: %s: create a pool with a shorter name", pool.Name, problems[0])
	}
	if pool.Spec.Form == v1beta1.PoolDaemonSet && pool.Spec.Replicas != nil {
		return nil, errors.New("spec.replicas: a DaemonSet runs one Pod per node: remove replicas, or set form: Deployment")
	}
	merged, err := load(withPool(b, &pool.Spec))
	if err != nil {
		return nil, fmt.Errorf("together with the Bundle the pool is not valid: %w", err)
	}
	if errs := bounds.Check(merged); len(errs) > 0 {
		for _, e := range errs { // those of the Bundle are reported there
			e.Field = strings.Replace(e.Field, "spec.konnectivity.agent.", "spec.", 1)
		}
		return nil, errs.ToAggregate()
	}
	if err := checkOriginal(merged, pool); err != nil {
		return nil, err
	}
	if pool.Namespace != merged.Namespace {
		return nil, fmt.Errorf("servers accept agents of namespace %s only, which is the Bundle's: create the pool there", merged.Namespace)
	}
	c := konnectivity.Agent(merged)
	c.Name = poolPrefix + pool.Name
	for _, set := range []*map[string]string{&c.Labels, &c.Selector, &c.PodLabels} {
		*set = maps.Clone(*set)
		(*set)[konnectivity.PoolLabel] = pool.Name
	}
	var o component.Object = component.DaemonSet(c)
	if merged.Konnectivity.Agent.Form == config.FormDeployment {
		c.Affinity = component.SpreadHosts(c.Selector)
		o = component.Deployment(c)
	}
	// The garbage collector deletes the agents with the pool, also if there is no operator.
	o.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1beta1.GroupVersion.String(), Kind: kindPool, Name: pool.Name, UID: pool.UID, Controller: ptr.To(true),
	}})
	return o, nil
}

// withPool is a Bundle whose agents are those of a pool.
func withPool(b *v1beta1.Bundle, spec *v1beta1.TunnelPoolSpec) *v1beta1.Bundle {
	b = b.DeepCopy()
	a := &b.Spec.Konnectivity.Agent
	a.Form, a.Replicas = config.FormDaemonSet, nil
	if spec.Form != v1beta1.PoolDaemonSet {
		a.Form, a.Replicas = config.FormDeployment, ptr.To(ptr.Deref(spec.Replicas, defaultPoolReplicas))
	}
	if len(spec.ServerAddresses) > 0 {
		b.Spec.Konnectivity.ServerAddresses = []v1beta1.ServerAddress{poolAddress(spec.ServerAddresses[0], b.Spec.Konnectivity.ServerAddresses)}
	}
	if spec.HostNetwork != "" {
		a.HostNetwork = spec.HostNetwork
	}
	if len(spec.Identifiers) > 0 {
		a.Identifiers = spec.Identifiers
	}
	if spec.Image != "" {
		a.Image = spec.Image
	}
	if spec.NodeSelector != nil {
		a.NodeSelector = spec.NodeSelector
	}
	if spec.Tolerations != nil {
		a.Tolerations = spec.Tolerations
	}
	if spec.Resources != nil {
		a.Resources = spec.Resources
	}
	return b
}

// checkOriginal refuses identifiers of a v1alpha1 pool that v1beta1 cannot express, for example of a kind that does not exist. The pool
// has lost them, and an annotation has them as the client wrote them.
func checkOriginal(merged *config.Bundle, pool *v1beta1.TunnelPool) error {
	if pool.Annotations[conversion.LostV1alpha1] == "" {
		return nil
	}
	object := map[string]any{"apiVersion": conversion.V1beta1, "kind": kindPool}
	for name, value := range map[string]any{
		"metadata": metav1.ObjectMeta{Annotations: pool.Annotations}, "spec": v1beta1.TunnelPoolSpec{Identifiers: pool.Spec.Identifiers},
	} {
		fields := map[string]any{}
		if err := fill(&fields, value); err != nil {
			return err
		}
		object[name] = fields
	}
	if err := conversion.Convert(object, conversion.V1alpha1); err != nil {
		return err
	}
	original, found, err := unstructured.NestedString(object, "spec", "identifiers")
	if err != nil || !found {
		return err
	}
	merged = merged.DeepCopy()
	merged.Konnectivity.Agent.Identifiers = original
	if errs := bundle.Validate(merged); len(errs) > 0 {
		return fmt.Errorf("the identifiers that the pool was given in v1alpha1 are not valid: %w: correct them; or write them in v1beta1, and remove annotation %s",
			errs.ToAggregate(), conversion.LostV1alpha1)
	}
	return nil
}

// poolAddress is where the agents of a pool dial the server: what its address leaves open is as in the Bundle's.
func poolAddress(own v1beta1.ServerAddress, ofBundle []v1beta1.ServerAddress) v1beta1.ServerAddress {
	if len(ofBundle) > 0 {
		own.Host, own.Port = cmp.Or(own.Host, ofBundle[0].Host), cmp.Or(own.Port, ofBundle[0].Port)
	}
	return own
}

// report writes the status of one pool if it differs.
func (r *PoolReconciler) report(ctx context.Context, pool *v1beta1.TunnelPool, v verdict) error {
	if pool.DeletionTimestamp != nil {
		return nil
	}
	before := pool.Status.DeepCopy()
	if err := r.count(ctx, pool); err != nil {
		return err
	}
	set := setter(&pool.Status.Conditions, pool.Generation)
	set(v1beta1.PoolAccepted, v.accepted, v.reason, v.message)
	if pool.Status.ReadyReplicas > 0 {
		set(v1beta1.PoolAvailable, true, v1beta1.ReasonAvailable, "agents are ready")
	} else {
		set(v1beta1.PoolAvailable, false, v1beta1.ReasonNotReady, "no agent is ready: look at the Pods with label "+pool.Status.Selector)
	}
	pool.Status.ObservedGeneration = pool.Generation
	if equality.Semantic.DeepEqual(before, &pool.Status) {
		return nil
	}
	if err := writeStatus(ctx, r.Client, kindPool, pool); err != nil {
		return err
	}
	if old := meta.FindStatusCondition(before.Conditions, v1beta1.PoolAccepted); !v.accepted && v.reason != v1beta1.ReasonWaiting && r.Events != nil && (old == nil || old.Reason != v.reason) {
		r.Events.Eventf(pool, nil, corev1.EventTypeWarning, v.reason, actionObserve, "%s", truncated(v.message, maxNote))
	}
	return nil
}

// count fills in what runs, not what should: an autoscaler reads it.
func (r *PoolReconciler) count(ctx context.Context, pool *v1beta1.TunnelPool) error {
	key := client.ObjectKey{Namespace: pool.Namespace, Name: poolPrefix + pool.Name}
	pool.Status.Replicas, pool.Status.ReadyReplicas = 0, 0
	pool.Status.Selector = labels.FormatLabels(map[string]string{konnectivity.PoolLabel: pool.Name})
	if pool.Spec.Form == v1beta1.PoolDaemonSet {
		d := &appsv1.DaemonSet{}
		err := r.Client.Get(ctx, key, d)
		pool.Status.Replicas, pool.Status.ReadyReplicas = d.Status.CurrentNumberScheduled, d.Status.NumberReady
		return client.IgnoreNotFound(err)
	}
	d := &appsv1.Deployment{}
	err := r.Client.Get(ctx, key, d)
	pool.Status.Replicas, pool.Status.ReadyReplicas = d.Status.Replicas, d.Status.ReadyReplicas
	return client.IgnoreNotFound(err)
}
