package tunnelreach

import (
	"context"
	"fmt"
	"maps"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// services knows the Services that the API server calls: those that webhook configurations, APIServices and CRD
// conversions name.
type services struct {
	lister corelisters.ServiceLister

	mu sync.RWMutex
	// named are the Services by who names them.
	named map[string][]types.NamespacedName
	// byNamespace counts how many name a Service.
	byNamespace map[string]map[string]int
}

func newServices(lister corelisters.ServiceLister) *services {
	return &services{lister: lister, named: map[string][]types.NamespacedName{}, byNamespace: map[string]map[string]int{}}
}

// dynamicSources are read without their types: of a CRD, which may hold megabytes of schema, one path is kept.
var dynamicSources = map[schema.GroupVersionResource][]string{
	{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}:             {"spec", "service"},
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}: {"spec", "conversion", "webhook", "clientConfig", "service"},
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
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { s.set(obj, false) },
		UpdateFunc: func(_, obj any) { s.set(obj, false) },
		DeleteFunc: func(obj any) { s.set(obj, true) },
	})
	if err != nil {
		return fmt.Errorf("watch what names Services: %w", err)
	}
	return nil
}

// set notes which Services an object names; none if it is gone.
func (s *services) set(obj any, gone bool) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	key, refs := references(obj)
	if key == "" {
		return
	}
	if gone {
		refs = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range s.named[key] {
		count := s.byNamespace[ref.Namespace]
		if count[ref.Name]--; count[ref.Name] == 0 {
			delete(count, ref.Name)
		}
	}
	delete(s.named, key)
	for _, ref := range refs {
		if s.byNamespace[ref.Namespace] == nil {
			s.byNamespace[ref.Namespace] = map[string]int{}
		}
		s.byNamespace[ref.Namespace][ref.Name]++
	}
	if len(refs) > 0 {
		s.named[key] = refs
	}
}

// references are the Services that an object names, and the object's key among all sources.
func references(obj any) (key string, refs []types.NamespacedName) {
	add := func(c admissionregistrationv1.WebhookClientConfig) {
		if c.Service != nil {
			refs = append(refs, types.NamespacedName{Namespace: c.Service.Namespace, Name: c.Service.Name})
		}
	}
	switch o := obj.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range o.Webhooks {
			add(o.Webhooks[i].ClientConfig)
		}
		return "mutating/" + o.Name, refs
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range o.Webhooks {
			add(o.Webhooks[i].ClientConfig)
		}
		return "validating/" + o.Name, refs
	case *unstructured.Unstructured:
		for _, path := range dynamicSources {
			namespace, _, _ := unstructured.NestedString(o.Object, append(path[:len(path):len(path)], "namespace")...)
			name, _, _ := unstructured.NestedString(o.Object, append(path[:len(path):len(path)], "name")...)
			if name != "" {
				refs = append(refs, types.NamespacedName{Namespace: namespace, Name: name})
			}
		}
		return o.GetKind() + "/" + o.GetName(), refs
	}
	return "", nil
}

// selects says whether a Service that the API server calls selects the pod.
func (s *services) selects(pod *corev1.Pod) bool {
	s.mu.RLock()
	names := maps.Clone(s.byNamespace[pod.Namespace])
	s.mu.RUnlock()
	for name := range names {
		service, err := s.lister.Services(pod.Namespace).Get(name)
		if err != nil || len(service.Spec.Selector) == 0 {
			continue
		}
		if labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			return true
		}
	}
	return false
}
