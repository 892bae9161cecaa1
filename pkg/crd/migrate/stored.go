// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/pkg/crd"
)

// drop leaves only the storage version in status.storedVersions, unless the definition has
// changed in a way that may have put objects into another version.
func (m *Migrator) drop(ctx context.Context, p *plan) error {
	client := m.definitions.ApiextensionsV1().CustomResourceDefinitions()
	want := []string{p.storage}
	err := retrying(ctx, func() error {
		d, err := client.Get(ctx, p.definition.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := unchanged(p, d); err != nil {
			return err
		}
		if slices.Equal(d.Status.StoredVersions, want) {
			return nil
		}
		body, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": d.ResourceVersion}, "status": map[string]any{"storedVersions": want}})
		if err != nil {
			return err
		}
		after, err := client.Patch(ctx, d.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager}, "status")
		if err == nil && !slices.Equal(after.Status.StoredVersions, want) {
			return fmt.Errorf("status.storedVersions is %v, not %v, after the patch: look for another writer of it", after.Status.StoredVersions, want)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: set status.storedVersions to %v: %w", p.definition.Name, want, err)
	}
	return nil
}

func unchanged(p *plan, d *apiextensionsv1.CustomResourceDefinition) error {
	const again = "while objects were migrated, so some may be in another version: nothing was dropped; run the command again"
	switch storage := crd.StorageVersion(d); {
	case d.UID != p.definition.UID:
		return fmt.Errorf("the definition was deleted and created %s", again)
	case storage != p.storage:
		return fmt.Errorf("the storage version changed from %s to %s %s", p.storage, storage, again)
	case d.Generation != p.definition.Generation:
		return fmt.Errorf("the definition's spec changed %s", again)
	}
	for _, v := range d.Status.StoredVersions {
		if v != p.storage && !slices.Contains(p.drop, v) {
			return fmt.Errorf("version %s was added to status.storedVersions %s", v, again)
		}
	}
	return nil
}
