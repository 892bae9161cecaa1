// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion/webhook"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// certificatesEvery is how often certificates are renewed if due.
const certificatesEvery = 10 * time.Minute

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
	// LeaderElect lets one of several replicas reconcile.
	LeaderElect bool
	// Version of the operator, for status.
	Version string
}

// The conversion webhook holds webhookRequests times webhookBytes at most, several times over
// while it converts. A request has the objects of one page of a list.
const (
	webhookRequests = 2
	webhookBytes    = 8 << 20
)

// Run runs the operator until ctx ends.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the webhook's server ends with this function
	certs := &certificates{client: clients, namespace: o.Namespace, names: o.names(), now: time.Now}
	cas, err := certs.ensure(ctx)
	if err != nil {
		return err
	}
	convert := webhook.New(webhook.Options{MaxInFlight: webhookRequests, MaxBytes: webhookBytes})
	if err := metrics.Registry.Register(convert); err != nil {
		return err
	}
	defer metrics.Registry.Unregister(convert)
	stopped, err := serveWebhook(ctx, o.WebhookAddress, convert, certs)
	if err != nil {
		return err
	}
	if err := applyDefinitions(ctx, cfg, o, cas); err != nil {
		return err
	}
	m, err := newManager(cfg, o, certs)
	if err != nil {
		return err
	}
	if err := m.Add(renewal{every: certificatesEvery, certs: certs, cfg: cfg, o: o, published: cas}); err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() {
		failed <- <-stopped
		cancel() // a replica without its webhook is of no use
	}()
	err = m.Start(ctx)
	cancel()
	return errors.Join(err, <-failed)
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

func newManager(cfg *rest.Config, o Options, certs *certificates) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1beta1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	m, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, LeaderElection: o.LeaderElect, LeaderElectionID: operator.Name, LeaderElectionNamespace: o.Namespace,
		LeaderElectionReleaseOnCancel: true, HealthProbeBindAddress: "0", // see addListeners
		// Names need to be unique for metrics only, and a process has one manager except in tests.
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
		Metrics:    metricsserver.Options{BindAddress: "0"}, // likewise
		Cache:      cache.Options{DefaultTransform: trimmed},
		// A Lease is written every second, and is read once per look: no cache.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&coordinationv1.Lease{}}}},
	})
	if err != nil {
		return nil, err
	}
	if err := addControllers(m, cfg, o, certs); err != nil {
		return nil, err
	}
	return m, addListeners(m, cfg, o, certs)
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

// addControllers adds the controllers of all kinds. Each looks at everything that its kind
// depends on: there is one Bundle, and there are few profiles and pools.
func addControllers(m manager.Manager, cfg *rest.Config, o Options, certs *certificates) error {
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
	bundles := &BundleReconciler{Client: m.GetClient(), Config: cfg, Version: o.Version, Events: events, certificates: certs}
	profiles := &ProfileReconciler{Client: m.GetClient(), Events: events}
	pools := &PoolReconciler{Client: m.GetClient(), Config: cfg, Events: events}
	controller := func(name string, of ...builder.WatchesOption) *builder.Builder {
		return ctrl.NewControllerManagedBy(m).Named(name).
			Watches(&v1beta1.Bundle{}, one, of...).Watches(&appsv1.Deployment{}, workload).Watches(&appsv1.DaemonSet{}, workload)
	}
	return errors.Join(
		controller("bundle", builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).Watches(&v1beta1.SchedulerProfile{}, one).Complete(bundles),
		controller("schedulerprofile").Watches(&v1beta1.SchedulerProfile{}, one).Complete(profiles),
		controller("tunnelpool").Watches(&v1beta1.TunnelPool{}, one).Complete(pools),
	)
}

// renewal renews certificates on every replica. One patch publishes a new CA.
type renewal struct {
	every     time.Duration
	certs     *certificates
	cfg       *rest.Config
	o         Options
	published []byte
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves the
// webhook.
func (renewal) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (r renewal) Start(ctx context.Context) error {
	ticker := time.NewTicker(r.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		cas, err := r.certs.ensure(ctx)
		if err == nil && !bytes.Equal(cas, r.published) {
			err = applyDefinitions(ctx, r.cfg, r.o, cas)
		}
		if err != nil {
			r.certs.failed(err)
			ctrl.LoggerFrom(ctx).Error(err, "Certificates of the webhook were not renewed; trying again", "in", r.every)
			continue
		}
		r.published = cas
	}
}
