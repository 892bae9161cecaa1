// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"path"
	"strings"
)

// ImageName is the last part of an image's name, whatever its registry or mirror, and
// its tag, "" if it has none.
func ImageName(image string) (name, tag string) {
	image, _, _ = strings.Cut(image, "@")
	name, tag, _ = strings.Cut(path.Base(image), ":")
	return name, tag
}

// HasPlugins says whether an image is a fairlead-scheduler by its name. The plugins of
// other images are unknown, except for a stock kube-scheduler, which has none of
// Fairlead's.
func HasPlugins(image string) bool {
	name, _ := ImageName(image)
	ours, _ := ImageName(DefaultSchedulerImage)
	return name == ours
}

// IsFairlead says whether an image is one of Fairlead's by the last part of its name, in any registry.
func IsFairlead(image string) bool {
	name, _ := ImageName(image)
	for _, own := range []string{DefaultSchedulerImage, DefaultServerImage, DefaultAgentImage, DefaultGatewayImage, DefaultTunnelAPIImage, DefaultOperatorImage} {
		if ownName, _ := ImageName(own); name == ownName {
			return true
		}
	}
	return false
}
