// SPDX-License-Identifier: Apache-2.0

package tunnelreach

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// dynamicSources are read without their types: for a CRD, which may hold megabytes of schema, the cache keeps one
// path.
var dynamicSources = map[schema.GroupVersionResource][]string{
	{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}:             {"spec", "service"},
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}: {"spec", "conversion", "webhook", "clientConfig", "service"},
}

// one has what the profiles of a scheduler share: they have one factory of informers, and need not each watch CRDs.
var one = struct {
	sync.Mutex
	by map[informers.SharedInformerFactory]*services
}{by: map[informers.SharedInformerFactory]*services{}}

// sharedServices are those of the scheduler whose informers these are, until ctx ends.
func sharedServices(ctx context.Context, factory informers.SharedInformerFactory, config *rest.Config) (*services, error) {
	one.Lock()
	defer one.Unlock()
	if s := one.by[factory]; s != nil {
		return s, nil
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for APIServices and CRDs: %w", err)
	}
	s, err := watchServices(ctx, factory, client)
	if err != nil {
		return nil, err
	}
	one.by[factory] = s
	context.AfterFunc(ctx, func() {
		one.Lock()
		defer one.Unlock()
		delete(one.by, factory)
	})
	return s, nil
}

// watchServices watches all sources until ctx ends. Typed informers are those of the scheduler, which starts them.
func watchServices(ctx context.Context, factory informers.SharedInformerFactory, client dynamic.Interface) (*services, error) {
	s := newServices(factory.Core().V1().Services().Lister())
	webhooks := factory.Admissionregistration().V1()
	for _, informer := range []cache.SharedIndexInformer{
		webhooks.MutatingWebhookConfigurations().Informer(), webhooks.ValidatingWebhookConfigurations().Informer(),
	} {
		if err := s.follow(informer); err != nil {
			return nil, err
		}
	}
	if err := s.followServices(factory.Core().V1().Services().Informer()); err != nil {
		return nil, err
	}
	others := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	for resource, path := range dynamicSources {
		informer := others.ForResource(resource).Informer()
		if err := informer.SetTransform(only(path)); err != nil {
			return nil, fmt.Errorf("watch %s: %w", resource.Resource, err)
		}
		if err := s.follow(informer); err != nil {
			return nil, err
		}
	}
	others.Start(ctx.Done())
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), s.synced...) {
			s.complete()
		}
	}()
	return s, nil
}

// only keeps of an object its kind, its name and one path.
func only(path []string) cache.TransformFunc {
	return func(obj any) (any, error) {
		full, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		small := &unstructured.Unstructured{Object: map[string]any{}}
		small.SetGroupVersionKind(full.GroupVersionKind())
		small.SetName(full.GetName())
		small.SetUID(full.GetUID())
		small.SetResourceVersion(full.GetResourceVersion())
		if ref, found, err := unstructured.NestedMap(full.Object, path...); err == nil && found {
			if err := unstructured.SetNestedMap(small.Object, ref, path...); err != nil {
				return nil, fmt.Errorf("keep %v of %s: %w", path, full.GetName(), err)
			}
		}
		return small, nil
	}
}

func (s *services) follow(informer cache.SharedIndexInformer) error {
	return s.handle(informer, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { s.set(obj, false) },
		UpdateFunc: func(_, obj any) { s.set(obj, false) },
		DeleteFunc: func(obj any) { s.set(obj, true) },
	})
}

// followServices reacts when a Service selects other pods, or no pods any more.
func (s *services) followServices(informer cache.SharedIndexInformer) error {
	return s.handle(informer, cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			b, ok := before.(*corev1.Service)
			a, ok2 := after.(*corev1.Service)
			if ok && ok2 && !equality.Semantic.DeepEqual(b.Spec.Selector, a.Spec.Selector) {
				s.changed()
			}
		},
		DeleteFunc: func(any) { s.changed() },
	})
}

func (s *services) handle(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) error {
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return fmt.Errorf("watch what names Services: %w", err)
	}
	s.synced = append(s.synced, registration.HasSynced)
	return nil
}

// subscribe registers a function that is called after each change, for one profile.
func (s *services) subscribe(changed func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers = append(slices.Clone(s.subscribers), changed)
}

// changed notifies all profiles.
func (s *services) changed() {
	s.mu.Lock()
	subscribers := s.subscribers
	s.mu.Unlock()
	for _, tell := range subscribers {
		tell()
	}
}

// complete records that all objects that existed at the start are known.
func (s *services) complete() {
	s.known.Store(true)
	s.changed()
}
