// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion/webhook"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// Options are the settings of the operator.
type Options struct {
	// Namespace of the operator's Secret and Lease.
	Namespace string
	// WebhookAddress is where the conversion webhook listens.
	WebhookAddress string
	// WebhookService is the Service, in Namespace, by which the API server calls the
	// webhook, through the tunnel.
	WebhookService string
	// WebhookURL replaces WebhookService, for a webhook that the API server reaches
	// itself, such as https://127.0.0.1:9443/convert.
	WebhookURL string
	// WebhookNames are names and addresses in the certificate besides the Service's.
	WebhookNames []string
	// MetricsAddress and HealthAddress are where these are served; "0" is nowhere. Metrics need a token of a
	// user who may get /metrics.
	MetricsAddress, HealthAddress string
	// IgnorePreflight are IDs of findings of install.Preflight that do not keep a Bundle from being applied.
	IgnorePreflight []string
	// Bounds are what Bundles, SchedulerProfiles and TunnelPools may ask for.
	Bounds operator.Bounds
	// LeaderElect lets one of several replicas reconcile.
	LeaderElect bool
	// Version of the operator, for status.
	Version string
	// Drain is how long the operator goes on after SIGTERM, or when it has lost the leader's Lease, without being ready: so
	// long API servers may still call this replica.
	Drain time.Duration

	timing   *timing              // nil is usual
	registry *prometheus.Registry // has the metrics of the webhook; nil makes one
}

// The conversion webhook holds webhookRequests times webhookBytes at most, several times over
// while it converts. A request has the objects of one page of a list.
const (
	webhookRequests = 2
	webhookBytes    = 8 << 20
)

// Run runs the operator until ctx ends, and for Options.Drain after that.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	if err := o.Bounds.Validate(); err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	definitions, err := newDefinitions(cfg, o)
	if err != nil {
		return err
	}
	certs := &certificates{client: clients, namespace: o.Namespace, names: o.names(), now: time.Now, published: definitions.trust}
	ctx, cancel := outlast(ctx, o.Drain, func() { certs.ending.Store(true) })
	defer cancel() // the webhook's server ends with this function
	probes, err := serveProbes(ctx, o.HealthAddress, certs)
	if err != nil {
		return err
	}
	if err := persist(ctx, "make the certificates of the webhook", func(ctx context.Context) error {
		_, err := certs.ensure(ctx)
		return err
	}); err != nil {
		return err
	}
	convert := webhook.New(webhook.Options{MaxInFlight: webhookRequests, MaxBytes: webhookBytes})
	if o.registry == nil {
		o.registry = prometheus.NewRegistry()
	}
	if err := o.registry.Register(convert); err != nil {
		return err
	}
	defer o.registry.Unregister(convert)
	converts, err := serveWebhook(ctx, o.WebhookAddress, convert, certs)
	if err != nil {
		return err
	}
	ended := endTogether(cancel, probes, converts)
	err = manage(ctx, cfg, o, certs, definitions)
	if err != nil {
		linger(ctx, o.Drain, certs)
	}
	cancel()
	return errors.Join(err, <-ended)
}

// linger goes on converting for some time when the controllers have ended by themselves, for example because the leader's
// Lease was lost: API servers may still call this replica. It does not wait if ctx has ended.
func linger(ctx context.Context, by time.Duration, certs *certificates) {
	certs.ending.Store(true)
	select {
	case <-time.After(by):
	case <-ctx.Done():
	}
}

// manage runs the controllers, when the API server serves all definitions. Until then the replica converts objects of
// those that are served, and renews its certificates.
func manage(ctx context.Context, cfg *rest.Config, o Options, certs *certificates, d *definitions) error {
	d.published = func() { certs.started.Store(true) }
	if err := insist(ctx, "install the definitions", func(ctx context.Context) error {
		cas, err := certs.ensure(ctx)
		if err != nil {
			return err
		}
		return d.install(ctx, cas)
	}); err != nil {
		return nil //nolint:nilerr // the operator was stopped while it waited, and has logged what for
	}
	migration := newMigration()
	m, err := newManager(cfg, o, certs, migration)
	if err != nil {
		return err
	}
	if err := addKeepers(m, cfg, certs, d, migration, o.timing.orUsual()); err != nil {
		return err
	}
	return m.Start(ctx)
}

// endTogether ends all servers when one of them has ended: a replica without its webhook is of no use. The
// channel gets their errors when all have.
func endTogether(end func(), servers ...<-chan error) <-chan error {
	one, all := make(chan error), make(chan error, 1)
	for _, s := range servers {
		go func() { one <- <-s }()
	}
	go func() {
		var failures []error
		for range servers {
			failures = append(failures, <-one)
			end()
		}
		all <- errors.Join(failures...)
	}()
	return all
}

// outlast returns a context that ends some time after another one; first is called when that ends.
func outlast(ctx context.Context, by time.Duration, first func()) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		first()
		select {
		case <-time.After(by):
			cancel()
		case <-longer.Done():
		}
	})
	return longer, func() {
		stop()
		cancel()
	}
}

func (o Options) names() []string {
	host := o.WebhookService + "." + o.Namespace + ".svc"
	return append([]string{host}, o.WebhookNames...)
}

// clientConfig is how the API server calls the webhook.
func (o Options) clientConfig(cas []byte) apiextensionsv1.WebhookClientConfig {
	if o.WebhookURL != "" {
		return apiextensionsv1.WebhookClientConfig{URL: &o.WebhookURL, CABundle: cas}
	}
	return operator.ClientConfig(o.Namespace, o.WebhookService, cas)
}

func newManager(cfg *rest.Config, o Options, certs *certificates, migration *migration) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1beta1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	m, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, LeaderElection: o.LeaderElect, LeaderElectionID: operator.Name, LeaderElectionNamespace: o.Namespace,
		LeaderElectionReleaseOnCancel: true, HealthProbeBindAddress: "0", // see serveProbes
		// Names need to be unique for metrics only, and a process has one manager except in tests.
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
		Metrics:    metricsserver.Options{BindAddress: "0"}, // see addMetrics
		Cache:      cache.Options{DefaultTransform: trimmed},
		// A Lease is written every second, and is read once per look: no cache. ConfigMaps are seldom read, and may not
		// be listed. Objects of group fairlead.dev are read as they are stored: see ofKind.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&coordinationv1.Lease{}, &corev1.ConfigMap{}}, Unstructured: true}},
	})
	if err != nil {
		return nil, err
	}
	if err := addControllers(m, cfg, o, certs, migration); err != nil {
		return nil, err
	}
	return m, addMetrics(m, cfg, o, certs)
}

// trimmed leaves out of the cache what the controllers do not read of the workloads of others: a
// cluster may have many.
func trimmed(o any) (any, error) {
	if w, ok := o.(client.Object); !ok || install.IsApplied(w) {
		return o, nil
	}
	switch w := o.(type) {
	case *appsv1.Deployment:
		w.Spec.Template, w.ManagedFields = corev1.PodTemplateSpec{}, nil
	case *appsv1.DaemonSet:
		w.Spec.Template, w.ManagedFields = corev1.PodTemplateSpec{}, nil
	}
	return o, nil
}

// retries bounds the pauses: the default of controller-runtime grows to 16 minutes.
func retries(t timing) workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](t.retryFirst, t.retryLast)
}

// addControllers adds the controllers of all kinds. Each looks at everything that its kind
// depends on: there is one Bundle, and there are few profiles and pools.
func addControllers(m manager.Manager, cfg *rest.Config, o Options, certs *certificates, migration *migration) error {
	// one leads to a look at the one Bundle, or at all objects of a kind.
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: bundle.ObjectName}}}
	})
	workload := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		if !install.IsApplied(o) {
			return nil // most workloads of a cluster are of no interest
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: bundle.ObjectName}}}
	})
	events := m.GetEventRecorder(operator.Name)
	bundles := &BundleReconciler{Client: m.GetClient(), Bounds: o.Bounds, Config: cfg, Version: o.Version, Events: events, IgnorePreflight: o.IgnorePreflight, certificates: certs, migration: migration, timing: o.timing}
	profiles := &ProfileReconciler{Client: m.GetClient(), Bounds: o.Bounds, Events: events, timing: o.timing}
	pools := &PoolReconciler{Client: m.GetClient(), Bounds: o.Bounds, Config: cfg, Events: events, timing: o.timing}
	watching := func(name string, of ...builder.WatchesOption) *builder.Builder {
		return ctrl.NewControllerManagedBy(m).Named(name).WithOptions(controller.Options{RateLimiter: retries(o.timing.orUsual())}).
			Watches(ofKind(kindBundle), one, of...).Watches(&appsv1.Deployment{}, workload).Watches(&appsv1.DaemonSet{}, workload)
	}
	return errors.Join(
		watching("bundle", builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).Watches(ofKind(kindProfile), one).
			WatchesRawSource(source.Channel(migration.changed, one)).Complete(bundles),
		watching("schedulerprofile").Watches(ofKind(kindProfile), one).Complete(profiles),
		watching("tunnelpool").Watches(ofKind(kindPool), one).Complete(pools),
	)
}
