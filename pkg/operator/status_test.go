// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
)

// TestBrokenStatus checks that nothing is kept of a status of which one field does not decode: the
// conditions that did decode would look as if there were nothing to write.
func TestBrokenStatus(t *testing.T) {
	condition := map[string]any{"type": v1beta1.ProfileAccepted, "status": "True", "reason": v1beta1.ReasonAccepted}
	for name, status := range map[string]map[string]any{
		"a condition's time": {"conditions": []any{condition, map[string]any{"type": "Other", "lastTransitionTime": "yesterday"}}},
		"all conditions":     {"conditions": "none"},
	} {
		u := ofKind(kindProfile)
		u.SetName("p")
		_ = unstructured.SetNestedField(u.Object, "p", "spec", "schedulerName")
		u.Object["status"] = status
		var p v1beta1.SchedulerProfile
		if err := decode(u, &p, &p.Spec, &p.Status); err != nil {
			t.Errorf("%s: %v, although the spec decodes", name, err)
		}
		if len(p.Status.Conditions) > 0 || p.Spec.SchedulerName != "p" {
			t.Errorf("%s: decoded as %+v", name, p)
		}
	}
}
