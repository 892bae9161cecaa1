// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// outage is how long the server is away while a namespace is to be deleted.
const outage = 30 * time.Second

// blocked stops the API server, deletes a namespace, and starts the server again after a while. kube-controller-manager deletes
// no namespace while discovery of any group fails.
func (b *bench) blocked(ctx context.Context, c *embeddedCluster) error {
	if err := c.supervisor.Stop(ctx, program); err != nil {
		return err
	}
	lost := func(ctx context.Context) error { return c.available(ctx, apiregistrationv1.ConditionFalse) }
	if err := b.until(ctx, "the loss of the server", lost); err != nil {
		return errors.Join(err, c.supervisor.Start(ctx, program))
	}
	name, err := c.deleted(ctx)
	if err == nil {
		err = wait(ctx, outage)
	}
	gone := c.isDeleted(ctx, name) == nil
	began := time.Now()
	if err := errors.Join(err, c.supervisor.Start(ctx, program)); err != nil {
		return err
	}
	if gone {
		return fmt.Errorf("namespace %s is deleted while the APIService is not available: the documents say it is not", name)
	}
	row("namespace deleted while the server is away", "not within %v", outage)
	if err := b.until(ctx, "the namespace to be deleted", func(ctx context.Context) error { return c.isDeleted(ctx, name) }); err != nil {
		return err
	}
	row("namespace deleted after the return of the server", "%v", time.Since(began).Round(10*time.Millisecond))
	return nil
}

// deletion measures how long it takes until an empty namespace is gone.
func (b *bench) deletion(ctx context.Context, c *embeddedCluster, what string) error {
	began := time.Now()
	name, err := c.deleted(ctx)
	if err != nil {
		return err
	}
	if err := b.until(ctx, what, func(ctx context.Context) error { return c.isDeleted(ctx, name) }); err != nil {
		return err
	}
	row(what, "%v", time.Since(began).Round(10*time.Millisecond))
	return nil
}

// deleted makes a namespace and asks for its deletion.
func (c *embeddedCluster) deleted(ctx context.Context) (string, error) {
	spaces := c.kube.CoreV1().Namespaces()
	made, err := spaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return made.Name, spaces.Delete(ctx, made.Name, metav1.DeleteOptions{})
}

// isDeleted returns an error until a namespace is gone.
func (c *embeddedCluster) isDeleted(ctx context.Context, name string) error {
	switch _, err := c.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("namespace %s is there", name)
}
