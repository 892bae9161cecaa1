// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// callWebhook makes the API server ask the webhook twice, for something that it refuses and for something that it admits.
func (s *Scope) callWebhook(ctx context.Context, h *hook) error {
	if err := s.hookDenies(ctx, h); err != nil {
		return err
	}
	return s.hookAdmits(ctx, h)
}

// hookDenies makes a ConfigMap that the webhook refuses; a dry run, so nothing is left if it does not.
func (s *Scope) hookDenies(ctx context.Context, h *hook) error {
	seen := h.reviews.Load()
	err := s.createReviewed(ctx, h, map[string]string{LabelCheck: s.id, labelDeny: "true"})
	switch {
	case err == nil:
		return errors.New("the API server admitted a ConfigMap that the webhook refuses: it does not call the webhook")
	case !strings.Contains(err.Error(), denyMessage):
		return err
	case h.reviews.Load() == seen:
		return errors.New("another component refused the request: the check's webhook was not called")
	}
	return nil
}

// hookAdmits makes a ConfigMap that the webhook admits.
func (s *Scope) hookAdmits(ctx context.Context, h *hook) error {
	seen := h.reviews.Load()
	if err := s.createReviewed(ctx, h, map[string]string{LabelCheck: s.id}); err != nil {
		return err
	}
	if h.reviews.Load() == seen {
		return errors.New("a ConfigMap was admitted without a call to the check's webhook")
	}
	return nil
}

func (s *Scope) createReviewed(ctx context.Context, h *hook, labels map[string]string) error {
	_, err := s.Client.CoreV1().ConfigMaps(h.namespace.Name).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "reviewed-", Labels: labels}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return fmt.Errorf("create a ConfigMap: %w", err)
	}
	return nil
}
