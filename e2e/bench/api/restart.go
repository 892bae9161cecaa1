// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// apiServer is the program's name at the supervisor.
const apiServer = "kube-apiserver"

// restart stores objects in the old version, restarts kube-apiserver, which converts each of
// them before it serves any, and waits until all can be read in both versions.
func (b *bench) restart(ctx context.Context) error {
	release, err := b.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := b.storage(ctx, "v1alpha1"); err != nil {
		return err
	}
	if err := b.create(ctx, oldNamespace, "v1alpha1", b.old); err != nil {
		return err
	}
	if err := b.storage(ctx, "v1beta1"); err != nil {
		return err
	}
	if err := b.supervisor.Stop(ctx, apiServer); err != nil {
		return err
	}
	start := time.Now()
	if err := b.supervisor.Start(ctx, apiServer); err != nil {
		return err
	}
	err = b.until(ctx, "kube-apiserver to be ready", func(ctx context.Context) error {
		_, _, err := b.get(ctx, "/readyz")
		return err
	})
	if err != nil {
		return err
	}
	ready := time.Since(start)
	took := map[string]time.Duration{}
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		err := b.until(ctx, "all objects in "+version, func(ctx context.Context) error { return b.readOld(ctx, version) })
		if err != nil {
			return err
		}
		took[version] = time.Since(start)
	}
	what := fmt.Sprintf("%d objects of %d kB in the old version readable after a start of kube-apiserver", b.old, b.size>>10)
	b.goal(what, max(took["v1beta1"], took["v1alpha1"]) <= barOld)
	row(what, "%.1f s in v1beta1, %.1f s in both (at most %.0f s); ready after %.1f s",
		took["v1beta1"].Seconds(), took["v1alpha1"].Seconds(), barOld.Seconds(), ready.Seconds())
	return nil
}

// readOld reads all objects that were stored in the old version, in pages.
func (b *bench) readOld(ctx context.Context, version string) error {
	path := poolPath(version, oldNamespace, "")
	n, next := 0, ""
	for {
		_, data, err := b.get(ctx, fmt.Sprintf("%s?limit=%d&continue=%s", path, page, next))
		if err != nil {
			return err
		}
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal(data, &list); err != nil {
			return err
		}
		if n, next = n+len(list.Items), list.Continue; next == "" {
			break
		}
	}
	if n != b.old {
		return fmt.Errorf("%d of %d objects", n, b.old)
	}
	return nil
}

// storage makes kube-apiserver store TunnelPools in a version, and waits until it does: handlers
// of the old definition live on for a moment.
func (b *bench) storage(ctx context.Context, version string) error {
	definitions := b.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	const name = "tunnelpools.fairlead.dev"
	u, err := definitions.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &crd); err != nil {
		return err
	}
	var changes []map[string]any
	for i, v := range crd.Spec.Versions {
		changes = append(changes, map[string]any{"op": "replace", "path": fmt.Sprintf("/spec/versions/%d/storage", i), "value": v.Name == version})
	}
	patch, err := json.Marshal(changes)
	if err != nil {
		return err
	}
	if _, err := definitions.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(5 * time.Second):
		return nil
	}
}
