package check

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespacePrefix begins the name of every namespace that a check makes.
const NamespacePrefix = "fairlead-verify-"

// LabelCheck is on everything that a check makes; its value is the check's ID.
const LabelCheck = "fairlead.dev/check"

// Scope is what one running check has: the Env, a namespace of its own, and a list of what to take back afterwards.
type Scope struct {
	*Env
	id string

	mu        sync.Mutex
	namespace *corev1.Namespace
	details   map[string]string
	undo      []undo
}

type undo struct {
	what string
	do   func(ctx context.Context) error
}

func newScope(env *Env, id string) *Scope {
	return &Scope{Env: env, id: id, details: map[string]string{}}
}

// Detail records a measurement or observation for the report.
func (s *Scope) Detail(key, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.details[key] = fmt.Sprintf(format, args...)
}

// Defer registers something to take back when the check ends, however it ends. The last registered is done first; do gets a context of its
// own, because the check's may be over. Register before the change, not after: then an interrupt between the two leaves nothing behind.
func (s *Scope) Defer(what string, do func(ctx context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.undo = append(s.undo, undo{what, do})
}

// Namespace returns the check's own namespace, and makes it when first asked.
func (s *Scope) Namespace(ctx context.Context) (*corev1.Namespace, error) {
	if s.namespace != nil {
		return s.namespace, nil
	}
	ns, err := s.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: NamespacePrefix,
		Labels:       map[string]string{LabelCheck: s.id},
	}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create a namespace for the check: %w", err)
	}
	s.namespace = ns
	s.Defer("delete namespace "+ns.Name, func(ctx context.Context) error { return s.deleteNamespace(ctx, ns.Name) })
	return ns, nil
}

// deleteNamespace deletes the pods itself first, without grace: a namespace is only gone when its pods are, and nobody needs their last words.
func (s *Scope) deleteNamespace(ctx context.Context, name string) error {
	now := int64(0)
	podErr := s.Client.CoreV1().Pods(name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
	err := s.Client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return errors.Join(podErr, err)
}

// cleanup undoes everything, last first, within limit; an interrupt of the run does not interrupt it.
func (s *Scope) cleanup(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		if err := s.undo[i].do(ctx); err != nil {
			errs = append(errs, fmt.Errorf("cleaning up: %s: %w", s.undo[i].what, err))
		}
	}
	s.undo = nil
	return errors.Join(errs...)
}
