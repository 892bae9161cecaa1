// SPDX-License-Identifier: Apache-2.0

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
	"k8s.io/apimachinery/pkg/util/rand"
)

// NamespacePrefix begins the name of every namespace that a check makes.
const NamespacePrefix = "fairlead-verify-"

// LabelCheck is on everything that a check makes; its value is the check's ID.
const LabelCheck = "fairlead.dev/check"

// Scope is the state of one running check: the Env, a namespace of its own, and a list of clean-up steps.
type Scope struct {
	*Env
	id string
	// probe is the run's pod to talk to; nil where the check makes its own.
	probe *sharedProbe
	// lease is the second scheduler's Lease at the start of the run; nil if the run did not read it.
	lease *earlyLease

	mu        sync.Mutex
	namespace *corev1.Namespace
	details   map[string]string
	warnings  []string
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

// Warn records what is unsafe although the check passes: what is wrong, and what to do.
func (s *Scope) Warn(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warnings = append(s.warnings, fmt.Sprintf(format, args...))
}

// Defer registers a clean-up step that runs when the check ends, however it ends. The last registered is done first; do gets a context of its
// own, because the check's may be over. Register before the change, not after: then an interrupt between the two leaves nothing behind.
func (s *Scope) Defer(what string, do func(ctx context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.undo = append(s.undo, undo{what, do})
}

// Namespace returns the check's own namespace, and makes it when first asked. The name is chosen here and not by the server, so that it is known even if
// the answer to the request never arrives.
func (s *Scope) Namespace(ctx context.Context) (*corev1.Namespace, error) {
	if s.namespace != nil {
		return s.namespace, nil
	}
	name := NamespacePrefix + rand.String(10)
	refused := false
	s.Defer("delete namespace "+name, func(ctx context.Context) error {
		if refused {
			return nil
		}
		return s.deleteNamespace(ctx, name)
	})
	ns, err := s.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{LabelCheck: s.id},
	}}, metav1.CreateOptions{})
	if err != nil {
		refused = apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err)
		return nil, fmt.Errorf("create a namespace for the check: %w", err)
	}
	s.namespace = ns
	return ns, nil
}

// deleteNamespace deletes the pods itself first, without a grace period: a namespace is gone only when its pods are, and the pods need no
// graceful termination.
func (s *Scope) deleteNamespace(ctx context.Context, name string) error {
	now := int64(0)
	podErr := s.Client.CoreV1().Pods(name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
	err := s.Client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return errors.Join(podErr, err)
}

// cleanup undoes everything, last first; an interrupt of the run does not interrupt it. Each step gets the whole limit: one that hangs must
// not keep the others from running.
func (s *Scope) cleanup(ctx context.Context, limit time.Duration) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		if err := bounded(ctx, limit, s.undo[i].do); err != nil {
			errs = append(errs, fmt.Errorf("clean up: %s: %w", s.undo[i].what, err))
		}
	}
	s.undo = nil
	return errors.Join(errs...)
}
