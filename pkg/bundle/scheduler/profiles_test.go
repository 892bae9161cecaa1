// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/profilecheck"
)

// onlyProfile is the one profile of a bundle, as kube-scheduler loads it.
func onlyProfile(t *testing.T, b *v1alpha1.Bundle) config.KubeSchedulerProfile {
	t.Helper()
	data, err := scheduler.Configuration(b, "")
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := scheduler.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded.Profiles) != 1 || loaded.Profiles[0].SchedulerName != "my-scheduler" {
		t.Fatalf("profiles %+v", loaded.Profiles)
	}
	if errs := scheduler.Validate(b.Defaulted()); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return loaded.Profiles[0]
}

// TestDefaultProfile: the default bundle installs a scheduler that is safe to run
// alongside the default one, unless the image may lack the plugins for that.
func TestDefaultProfile(t *testing.T) {
	own := []string{pluginargs.FailoverBarrier, pluginargs.ForeignNominations, pluginargs.PolitePreemption}
	for image, want := range map[string]bool{
		"": true, "mirror.example:5000/x/fairlead-scheduler:v2@sha256:00": true,
		"registry.k8s.io/kube-scheduler:v1.36.0": false, "gcr.io/my-gcp-project/my-kube-scheduler:1.0": false,
	} {
		b := &v1alpha1.Bundle{}
		b.Scheduler.Image = image
		profile := onlyProfile(t, b)
		enabled := profilecheck.EnabledPlugins(&profile)
		if want != enabled.HasAll(own...) || !want && enabled.HasAny(own...) {
			t.Errorf("image %q: enabled %v", image, sets.List(enabled))
		}
		if enabled.Has(names.DefaultPreemption) == want {
			t.Errorf("image %q: %s enabled: %t", image, names.DefaultPreemption, want)
		}
	}
}

// TestDefaultProfileFollowsThePlugins: the plugin settings of the bundle apply to
// the default profile too.
func TestDefaultProfileFollowsThePlugins(t *testing.T) {
	b := &v1alpha1.Bundle{}
	p := &b.Scheduler.Plugins
	p.FailoverBarrier.Timeout = &metav1.Duration{Duration: 7 * time.Second}
	p.PolitePreemption.Enabled = ptr.To(false)
	p.TunnelReach.Enabled = ptr.To(true)
	b.Scheduler.PercentageOfNodesToScore = ptr.To[int32](40)
	profile := onlyProfile(t, b)
	enabled := profilecheck.EnabledPlugins(&profile)
	if enabled.Has(pluginargs.PolitePreemption) || !enabled.HasAll(pluginargs.TunnelReach, names.DefaultPreemption) {
		t.Errorf("enabled %v", sets.List(enabled))
	}
	if profile.PercentageOfNodesToScore != nil {
		t.Errorf("the profile hides scheduler.percentageOfNodesToScore with %d", *profile.PercentageOfNodesToScore)
	}
	var barrier pluginargs.FailoverBarrierArgs
	for _, c := range profile.PluginConfig {
		if c.Name != pluginargs.FailoverBarrier {
			continue
		}
		if err := pluginargs.Decode(c.Args, &barrier); err != nil {
			t.Fatal(err)
		}
	}
	if barrier.Timeout == nil || barrier.Timeout.Duration != 7*time.Second {
		t.Errorf("the barrier's timeout is %v", barrier.Timeout)
	}
	if !scheduler.NeedsTunnelCondition(b) {
		t.Error("no controller maintains the nodes' condition")
	}
}
