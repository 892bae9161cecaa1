// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keep drops the entries of versions that are not served: once such a version is gone,
// server-side apply fails on every object that has an entry of it.
func keep(entries []metav1.ManagedFieldsEntry, p *plan) (kept []metav1.ManagedFieldsEntry, changed bool) {
	for _, e := range entries {
		if slices.Contains(p.served, e.APIVersion) {
			kept = append(kept, e)
		}
	}
	if len(kept) == len(entries) {
		return entries, false
	}
	if len(kept) == 0 {
		// An empty list would make the next server-side apply take over all fields as those
		// of an unknown manager. An entry prevents that. One without fields would be dropped, so
		// it has the name, which no client can change.
		kept = append(kept, metav1.ManagedFieldsEntry{Manager: fieldManager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: p.resource.GroupVersion().String(),
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:name":{}}}`)})
	}
	return kept, true
}
