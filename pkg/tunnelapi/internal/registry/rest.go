// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/warning"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/internal/memstore"
)

// resource describes a resource that can be watched.
type resource struct {
	plural, singular, short string
	newFunc, newList        func() runtime.Object
	fields                  func(runtime.Object) fields.Set
	table                   rest.TableConvertor
	// ofAnswers means that only the answers of servers tell which objects there are.
	ofAnswers bool
}

var agents = resource{
	plural: "tunnelagents", singular: "tunnelagent", short: "ta",
	newFunc: func() runtime.Object { return &v1alpha1.TunnelAgent{} },
	newList: func() runtime.Object { return &v1alpha1.TunnelAgentList{} },
	fields: func(obj runtime.Object) fields.Set {
		a, ok := obj.(*v1alpha1.TunnelAgent)
		if !ok {
			return nil
		}
		return fields.Set{v1alpha1.FieldNodeName: a.Status.NodeName, v1alpha1.FieldAgentID: a.Status.AgentID,
			v1alpha1.FieldDraining: strconv.FormatBool(isTrue(a.Status.Conditions, v1alpha1.ConditionDraining))}
	},
	table: agentTable, ofAnswers: true,
}

var servers = resource{
	plural: "tunnelservers", singular: "tunnelserver", short: "ts",
	newFunc: func() runtime.Object { return &v1alpha1.TunnelServer{} },
	newList: func() runtime.Object { return &v1alpha1.TunnelServerList{} },
	fields:  func(runtime.Object) fields.Set { return fields.Set{} },
	table:   serverTable,
}

// attrs returns what selectors compare with.
func (r *resource) attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	m, ok := obj.(metav1.Object)
	if !ok {
		return nil, nil, fmt.Errorf("a %T has no metadata", obj)
	}
	f := r.fields(obj)
	f[v1alpha1.FieldName] = m.GetName()
	return m.GetLabels(), f, nil
}

// prefix is what the keys of the resource begin with.
func (r *resource) prefix() string { return "/" + r.plural + "/" }

// Watched serves a resource from a store, by get, list and watch only.
type Watched struct {
	resource
	// Store has the objects. Writers use Put and Remove of Watched.
	Store   *memstore.Store
	source  Source
	generic *genericregistry.Store
	pace    pacer
	watches *places
}

var (
	_ rest.Lister               = (*Watched)(nil)
	_ rest.Getter               = (*Watched)(nil)
	_ rest.Watcher              = (*Watched)(nil)
	_ rest.Scoper               = (*Watched)(nil)
	_ rest.ShortNamesProvider   = (*Watched)(nil)
	_ rest.SingularNameProvider = (*Watched)(nil)
	_ rest.CategoriesProvider   = (*Watched)(nil)
)

func newWatched(r resource, source Source, codec runtime.Codec, started time.Time, watches *places) (*Watched, error) {
	store := memstore.New(r.prefix(), r.newFunc, started)
	key := func(obj runtime.Object) (string, error) { return storage.NoNamespaceKeyFunc(r.prefix(), obj) }
	c, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage: store, Versioner: store.Versioner(), GroupResource: v1alpha1.Resource(r.plural), EventsHistoryWindow: memstore.History,
		ResourcePrefix: r.prefix(), KeyFunc: key, GetAttrsFunc: r.attrs, NewFunc: r.newFunc, NewListFunc: r.newList, Codec: codec,
	})
	if err != nil {
		return nil, fmt.Errorf("start the watch cache of %s: %w", r.plural, err)
	}
	delegator := cacher.NewCacheDelegator(c, store)
	g := &genericregistry.Store{
		NewFunc: r.newFunc, NewListFunc: r.newList, TableConvertor: r.table,
		DefaultQualifiedResource: v1alpha1.Resource(r.plural), SingularQualifiedResource: v1alpha1.Resource(r.singular),
		KeyRootFunc: func(context.Context) string { return r.prefix() },
		KeyFunc: func(ctx context.Context, name string) (string, error) {
			return genericregistry.NoNamespaceKeyFunc(ctx, "/"+r.plural, name)
		},
		ObjectNameFunc: func(obj runtime.Object) (string, error) { return obj.(metav1.Object).GetName(), nil },
		PredicateFunc: func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
			return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: r.attrs}
		},
		Storage:            genericregistry.DryRunnableStorage{Storage: memstore.Guard{Interface: delegator}, Codec: codec},
		ReadinessCheckFunc: delegator.ReadinessCheck,
		DestroyFunc:        func() { memstore.StopCache(delegator, c) },
	}
	return &Watched{resource: r, source: source, Store: store, generic: g, watches: watches}, nil
}

// Prefix is what the keys of the objects begin with.
func (w *Watched) Prefix() string { return w.prefix() }

// New implements rest.Storage.
func (w *Watched) New() runtime.Object { return w.newFunc() }

// Destroy implements rest.Storage.
func (w *Watched) Destroy() { w.generic.DestroyFunc() }

// ReadinessCheck implements rest.StorageWithReadiness.
func (w *Watched) ReadinessCheck() error { return w.generic.ReadinessCheckFunc() }

// NewList implements rest.Lister.
func (w *Watched) NewList() runtime.Object { return w.newList() }

// NamespaceScoped implements rest.Scoper.
func (w *Watched) NamespaceScoped() bool { return false }

// ShortNames implements rest.ShortNamesProvider.
func (w *Watched) ShortNames() []string { return []string{w.short} }

// Categories implements rest.CategoriesProvider.
func (w *Watched) Categories() []string { return []string{"tunnel"} }

// GetSingularName implements rest.SingularNameProvider.
func (w *Watched) GetSingularName() string { return w.singular }

// Get implements rest.Getter.
func (w *Watched) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	if err := w.unknown(); err != nil {
		return nil, err
	}
	return w.generic.Get(ctx, name, options)
}

// unknown is the answer while it is not known which objects there are. With an empty list, clients that keep the state
// would take all objects for deleted.
func (w *Watched) unknown() error {
	if err := w.source.Ready(); w.ofAnswers && err != nil {
		return apierrors.NewServiceUnavailable(err.Error())
	}
	return nil
}

// List implements rest.Lister. It warns if the objects of some servers may be missing: those that are known are listed.
func (w *Watched) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	if err := w.unknown(); err != nil {
		return nil, err
	}
	list, err := w.generic.List(ctx, options)
	if err != nil {
		return nil, err
	}
	for _, m := range w.source.Missing() {
		if m.Server == "" || w.ofAnswers { // servers that do not answer have objects themselves
			warning.AddWarning(ctx, "", m.Of(w.plural))
		}
	}
	return list, nil
}

// Watch implements rest.Watcher.
func (w *Watched) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	if err := w.unknown(); err != nil {
		return nil, err
	}
	give, err := w.watches.take(ctx)
	if err != nil {
		return nil, err
	}
	in, err := w.generic.Watch(ctx, options)
	if err != nil {
		give()
		return nil, err
	}
	now, err := w.Store.GetCurrentResourceVersion(ctx)
	if err != nil {
		give()
		in.Stop()
		return nil, err
	}
	return w.pace.start(in, w.plural, now, everything(options), give), nil
}

// everything reports whether a watch gets all events.
func everything(o *metainternalversion.ListOptions) bool {
	return o == nil || (o.LabelSelector == nil || o.LabelSelector.Empty()) && (o.FieldSelector == nil || o.FieldSelector.Empty())
}

// ConvertToTable implements rest.TableConvertor.
func (w *Watched) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return w.table.ConvertToTable(ctx, object, options)
}

func isTrue(conditions []metav1.Condition, kind string) bool {
	return statusOf(conditions, kind) == "True"
}

// statusOf is the status of a condition, as a table shows it.
func statusOf(conditions []metav1.Condition, kind string) string {
	for _, c := range conditions {
		if c.Type == kind {
			return string(c.Status)
		}
	}
	return string(metav1.ConditionUnknown)
}
