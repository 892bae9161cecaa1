// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// newFields are the fields of a profile's plugins that kubescheduler.config.k8s.io/v1
// got in a minor version. The scheduler before it reads its file strictly and exits.
var newFields = []struct {
	name, since string
	of          func(*schedulerv1.Plugins) schedulerv1.PluginSet
}{
	{"placementGenerate", "1.36.0", func(p *schedulerv1.Plugins) schedulerv1.PluginSet { return p.PlacementGenerate }},
	{"placementScore", "1.36.0", func(p *schedulerv1.Plugins) schedulerv1.PluginSet { return p.PlacementScore }},
}

// validateNewFields refuses fields that the scheduler in the image does not know. It
// accepts all fields for an image of unknown version.
func validateNewFields(b *v1alpha1.Bundle, p *field.Path) field.ErrorList {
	image, err := version.ParseSemantic(KubernetesVersion(b.Scheduler.Image))
	if err != nil {
		return nil
	}
	var errs field.ErrorList
	for i, profile := range b.Scheduler.Profiles {
		if profile.Plugins == nil {
			continue
		}
		for _, f := range newFields {
			set, since := f.of(profile.Plugins), version.MustParseSemantic(f.since)
			if len(set.Enabled)+len(set.Disabled) == 0 || image.Major() > since.Major() || image.Major() == since.Major() && image.Minor() >= since.Minor() {
				continue
			}
			errs = append(errs, field.Forbidden(p.Index(i).Child("plugins", f.name), fmt.Sprintf(
				"kube-scheduler has this field since %d.%d, and scheduler.image %s is of v%s: it would not start; remove the field, or use an image of v%d.%d",
				since.Major(), since.Minor(), b.Scheduler.Image, image, since.Major(), since.Minor())))
		}
	}
	return errs
}
