// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fairlead-dev/fairlead/pkg/crd/migrate"
)

// addKeepers adds what keeps the certificates and the definitions: on every replica, because every
// one serves the webhook, and the migration of stored objects on the one that leads.
func addKeepers(m manager.Manager, cfg *rest.Config, certs *certificates, d *definitions, migration *migration, timing timing) error {
	objects, err := metadata.NewForConfig(cfg)
	if err != nil {
		return err
	}
	names, err := d.names()
	if err != nil {
		return err
	}
	// Not by storagemigration.k8s.io: few API servers serve it, it leaves managedFields as they are, and it would take the
	// right to have any kind of the cluster rewritten.
	migrator, err := migrate.New(cfg, migrate.Options{Method: migrate.Patch, CleanUp: true, Settle: timing.settle})
	if err != nil {
		return err
	}
	migrates := func(ctx context.Context) error {
		err := migrateStored(ctx, migrator, names)
		migration.note(ctx, err)
		return err
	}
	return errors.Join(
		m.Add(certificateKeeper(objects, certs, d, names, timing)),
		m.Add(&keeper{name: "Migrating stored objects", look: migrates, informers: definitionInformers(objects, names), leads: true, timing: timing}),
	)
}

// certificateKeeper renews certificates and publishes their CAs.
func certificateKeeper(client metadata.Interface, certs *certificates, d *definitions, names []string, timing timing) *keeper {
	renew := func(ctx context.Context) error {
		cas, err := certs.ensure(ctx)
		if err == nil {
			err = d.publish(ctx, cas)
		}
		if err != nil {
			certs.failed(err)
		}
		return err
	}
	secret := informer(client, corev1.SchemeGroupVersion.WithResource("secrets"), certs.namespace, secretName)
	return &keeper{name: "Renewing the certificates of the webhook", look: renew, informers: append(definitionInformers(client, names), secret), timing: timing}
}

func definitionInformers(client metadata.Interface, names []string) (all []cache.SharedInformer) {
	for _, name := range names {
		all = append(all, informer(client, apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"), "", name))
	}
	return all
}

// informer watches the metadata of one object, which a role can name.
func informer(client metadata.Interface, resource schema.GroupVersionResource, namespace, name string) cache.SharedInformer {
	one := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
	i := metadatainformer.NewFilteredMetadataInformer(client, resource, namespace, 0, nil, one).Informer()
	_ = i.SetTransform(func(o any) (any, error) { // fails for one that has started
		if m, ok := o.(*metav1.PartialObjectMetadata); ok {
			m.Annotations, m.ManagedFields = nil, nil // kubectl keeps whole definitions there
		}
		return o, nil
	})
	return i
}

// keeper looks at objects when one of them changes, and from time to time.
type keeper struct {
	name      string // of what look does, at the start of a sentence
	look      func(context.Context) error
	informers []cache.SharedInformer
	leads     bool
	timing    timing
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (k *keeper) NeedLeaderElection() bool { return k.leads }

// Start implements manager.Runnable.
func (k *keeper) Start(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	note := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	for _, i := range k.informers {
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { note() }, UpdateFunc: func(_, _ any) { note() }, DeleteFunc: func(any) { note() },
		}); err != nil {
			return err
		}
		go i.RunWithContext(ctx)
	}
	again := k.timing.keepAgain // after the next failure
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		case <-changed:
		}
		if err := k.look(ctx); err == nil {
			again = k.timing.keepAgain
			next.Reset(k.timing.keepEvery)
		} else if ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, k.name+" failed", "again in", again)
			next.Reset(again)
			again = min(2*again, k.timing.keepEvery)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(k.timing.keepPause):
		}
	}
}
