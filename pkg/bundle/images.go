// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"slices"

	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Images returns the container images of a bundle, sorted, each once.
func Images(b *v1alpha1.Bundle) []string {
	b = b.Defaulted()
	list := []string{}
	if ptr.Deref(b.Scheduler.Enabled, true) {
		list = append(list, b.Scheduler.Image)
	}
	if ptr.Deref(b.Konnectivity.Enabled, true) {
		list = append(list, b.Konnectivity.Server.Image, b.Konnectivity.Agent.Image)
	}
	if ptr.Deref(b.Gateway.Enabled, false) {
		list = append(list, b.Gateway.Image)
	}
	if ptr.Deref(b.TunnelAPI.Enabled, false) {
		list = append(list, b.TunnelAPI.Image)
	}
	slices.Sort(list)
	return slices.Compact(list)
}
