// SPDX-License-Identifier: Apache-2.0

package conversion

import "strings"

// WellTyped reports whether all fields of an object that move have the types of its version.
func WellTyped(object map[string]any) bool {
	kind, _ := object["kind"].(string)
	for _, r := range kinds[kind] {
		names, typed := r.old, r.oldType
		if object["apiVersion"] == V1beta1 {
			names, typed = r.new, r.newType
		}
		if parent := nested(object, strings.Split(r.parent, ".")); parent != nil && !fits(pick(parent, names), names, typed) {
			return false
		}
	}
	return true
}
