// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// A bundle whose scheduler would never run is refused before anything is made.
func TestCheckBundle(t *testing.T) {
	static := &v1alpha1.Bundle{Scheduler: v1alpha1.Scheduler{Form: v1alpha1.FormStaticPod}}
	off := static.DeepCopy()
	off.Scheduler.Enabled = ptr.To(false)
	for name, tc := range map[string]struct {
		bundle *v1alpha1.Bundle
		ok     bool
	}{
		"no bundle": {nil, true}, "default": {v1alpha1.New(), true}, "static Pod": {static, false}, "static Pod, not enabled": {off, true},
	} {
		if err := CheckBundle(tc.bundle); (err == nil) != tc.ok {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
