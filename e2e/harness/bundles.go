// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
)

// Bundles reads and writes the Bundle objects of a cluster in one version of the API.
func Bundles(client dynamic.Interface, version string) dynamic.ResourceInterface {
	return client.Resource(schema.GroupVersionResource{Group: v1beta1.GroupVersion.Group, Version: version, Resource: "bundles"})
}

// WaitReconciled waits until the operator has applied the Bundle.
func WaitReconciled(ctx context.Context, client dynamic.Interface, limit time.Duration) error {
	return Wait(ctx, limit, "the operator to apply the Bundle", func(ctx context.Context) error {
		u, err := Bundles(client, v1beta1.GroupVersion.Version).Get(ctx, bundle.ObjectName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		b := &v1beta1.Bundle{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, b); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(b.Status.Conditions, v1beta1.BundleReconciled) || len(b.Status.Components) != 2 {
			return fmt.Errorf("%+v", b.Status)
		}
		return nil
	})
}
