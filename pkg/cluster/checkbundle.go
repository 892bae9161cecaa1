// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"

	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// CheckBundle refuses a bundle with a part that no provider can run. nil is the
// default bundle.
func CheckBundle(b *v1alpha1.Bundle) error {
	if b != nil && ptr.Deref(b.Scheduler.Enabled, true) && b.Scheduler.Form == v1alpha1.FormStaticPod {
		return errors.New("scheduler.form StaticPod: \"fairlead up\" does not put the second scheduler's files on nodes: leave the field out for a Deployment")
	}
	return nil
}
