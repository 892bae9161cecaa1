// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/components"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/profilecheck"
)

// KubernetesVersion returns the version of the scheduler in an image, such as v1.36.3:
// for a stock kube-scheduler the version in its tag, for every other image the version
// of this release. It returns "" for a stock image without a version in its tag, or
// without a tag.
func KubernetesVersion(image string) string {
	name, tag := v1alpha1.ImageName(image)
	switch {
	case name != stockName:
		return components.KubernetesVersion()
	case minor(tag) == "":
		return ""
	default:
		return tag
	}
}

// stockName is the image name of unmodified kube-schedulers, in any registry or
// mirror.
const stockName = "kube-scheduler"

// minor is the beginning 1.36 of a tag like v1.36.3, "" if it is not one.
func minor(tag string) string {
	v, err := version.ParseSemantic(tag)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d.%d", v.Major(), v.Minor())
}

// pluginsUnknown says whether an image may hold plugins that this release's scheduler
// does not: one of the user's own, or a stock one of another minor version.
func pluginsUnknown(image string) bool {
	name, tag := v1alpha1.ImageName(image)
	ours, ourTag := v1alpha1.ImageName(v1alpha1.DefaultSchedulerImage)
	switch name {
	case ours:
		return tag != ourTag
	case stockName:
		return minor(tag) != minor(components.KubernetesVersion())
	default:
		return true
	}
}

// validateImage refuses a stock kube-scheduler for profiles with Fairlead's plugins: it
// would exit when it makes the first of them.
func validateImage(b *v1alpha1.Bundle, p *field.Path) field.ErrorList {
	if name, _ := v1alpha1.ImageName(b.Scheduler.Image); name != stockName {
		return nil
	}
	var errs field.ErrorList
	profiles := Profiles(b)
	for i := range profiles {
		missing := slices.DeleteFunc(pluginargs.Names(), func(plugin string) bool { return !profilecheck.Enables(&profiles[i], plugin) })
		if len(missing) > 0 {
			errs = append(errs, field.Invalid(p, b.Scheduler.Image, fmt.Sprintf(
				"is a stock kube-scheduler, and profile %s enables %s, which it does not have: it would not start; "+
					"remove the field for this release's image, or disable these plugins (of built-in profiles under scheduler.plugins)",
				ptr.Deref(profiles[i].SchedulerName, ""), strings.Join(missing, ", "))))
		}
	}
	return errs
}
