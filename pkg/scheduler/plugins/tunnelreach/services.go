// SPDX-License-Identifier: Apache-2.0

package tunnelreach

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// services knows the Services that the API server calls: those that webhook configurations, APIServices and CRD
// conversions name.
type services struct {
	lister corelisters.ServiceLister
	synced []cache.InformerSynced
	// known says that all sources have been read once.
	known atomic.Bool
	// names are the Services' names by namespace: replaced, never changed, so that a look at it takes no lock.
	names atomic.Pointer[map[string][]string]

	mu sync.Mutex
	// named holds the Services that each object names, by the key of the object.
	named       map[string][]types.NamespacedName
	subscribers []func()
}

func newServices(lister corelisters.ServiceLister) *services {
	s := &services{lister: lister, named: map[string][]types.NamespacedName{}}
	s.names.Store(&map[string][]string{})
	return s
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
	same := slices.Equal(s.named[key], refs)
	if !same {
		s.named[key] = refs
		if len(refs) == 0 {
			delete(s.named, key)
		}
		s.names.Store(byNamespace(s.named))
	}
	s.mu.Unlock()
	if !same {
		s.changed()
	}
}

func byNamespace(named map[string][]types.NamespacedName) *map[string][]string {
	names := map[string][]string{}
	for _, key := range slices.Sorted(maps.Keys(named)) {
		for _, ref := range named[key] {
			if !slices.Contains(names[ref.Namespace], ref.Name) {
				names[ref.Namespace] = append(names[ref.Namespace], ref.Name)
			}
		}
	}
	return &names
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
	names := *s.names.Load()
	if len(names) == 0 {
		return false
	}
	return slices.ContainsFunc(names[pod.Namespace], func(name string) bool {
		service, err := s.lister.Services(pod.Namespace).Get(name)
		return err == nil && matches(service, pod)
	})
}

// mayTurnOut says whether the pod may be behind a Service that the API server calls. While not all sources are
// known, that is any pod behind any Service.
func (s *services) mayTurnOut(pod *corev1.Pod) bool {
	if s.known.Load() || len(pod.Labels) == 0 {
		return false
	}
	list, err := s.lister.Services(pod.Namespace).List(labels.Everything())
	return err != nil || slices.ContainsFunc(list, func(service *corev1.Service) bool { return matches(service, pod) })
}

// matches says whether a Service selects a pod; one without a selector selects none.
func matches(service *corev1.Service, pod *corev1.Pod) bool {
	return len(service.Spec.Selector) > 0 && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels))
}
