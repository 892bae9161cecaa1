// SPDX-License-Identifier: Apache-2.0

package profilecheck_test

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/profilecheck"
)

// TestKnown compares the list of in-tree plugins with kube-scheduler's registry, so that the next Kubernetes shows its
// new ones.
func TestKnown(t *testing.T) {
	for name := range plugins.NewInTreeRegistry() {
		if !profilecheck.Known(name) {
			t.Errorf("%s is in kube-scheduler and not known here", name)
		}
	}
	for _, name := range pluginargs.Names() {
		if !profilecheck.Known(name) {
			t.Errorf("%s is not known", name)
		}
	}
	if profilecheck.Known("EBSLimits") {
		t.Error("EBSLimits is gone from Kubernetes 1.36")
	}
}

const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"

func TestCheckFile(t *testing.T) {
	for name, tc := range map[string]struct{ profile, field, want string }{
		"default":                {"- schedulerName: a", "", ""},
		"legal arguments":        {"- {schedulerName: a, pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 3}]}}}]}", "", ""},
		"own plugin":             {"- {schedulerName: a, plugins: {multiPoint: {enabled: [{name: TunnelReach}]}}, pluginConfig: [{name: TunnelReach, args: {mode: Require}}]}", "", ""},
		"absent plugin":          {"- {schedulerName: a, pluginConfig: [{name: TunnelReach}]}", "profiles[0].pluginConfig[0].name", "not enabled"},
		"disabled plugin":        {"- {schedulerName: a, plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: PrioritySort}, {name: DefaultBinder}]}}, pluginConfig: [{name: NodeAffinity}]}", "profiles[0].pluginConfig[0].name", "not enabled"},
		"second profile":         {"- schedulerName: a\n- {schedulerName: b, pluginConfig: [{name: Other}]}", "profiles[1].pluginConfig[0].name", "not enabled"},
		"zero weight":            {"- {schedulerName: a, plugins: {score: {enabled: [{name: ImageLocality, weight: 0}]}}}", "profiles[0].plugins.score.enabled[0].weight", "zero would mean 1"},
		"unknown plugin":         {"- {schedulerName: a, plugins: {score: {enabled: [{name: Nobody}]}}}", "profiles[0].plugins.score.enabled[0].name", "does not have this plugin"},
		"unknown argument":       {"- {schedulerName: a, plugins: {multiPoint: {enabled: [{name: TunnelReach}]}}, pluginConfig: [{name: TunnelReach, args: {modes: 1}}]}", "profiles[0].pluginConfig[0].args", "modes"},
		"fit's weight":           {"- {schedulerName: a, pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: LeastAllocated, resources: [{name: cpu, weight: 500}]}}}]}", "profiles[0].pluginConfig[0].args.scoringStrategy.resources[0].weight", "not in valid range"},
		"polite beside default":  {"- {schedulerName: a, plugins: {multiPoint: {enabled: [{name: PolitePreemption}]}}}", "profiles[0].plugins.postFilter", "disable it under multiPoint.disabled"},
		"polite for default":     {"- {schedulerName: a, plugins: {multiPoint: {enabled: [{name: PolitePreemption}], disabled: [{name: DefaultPreemption}]}}}", "", ""},
		"polite, none elsewhere": {"- {schedulerName: a, plugins: {multiPoint: {enabled: [{name: PolitePreemption}]}, postFilter: {disabled: [{name: '*'}], enabled: [{name: PolitePreemption}]}}}", "", ""},
		"no such point":          {"- {schedulerName: a, plugins: {score: {enabled: [{name: FailoverBarrier}]}}}", "profiles[0].plugins.score.enabled[0].name", "under preBind, preFilter"},
		"twice":                  {"- {schedulerName: a, plugins: {multiPoint: {enabled: [{name: ForeignNominations}, {name: ForeignNominations}]}}}", "profiles[0].plugins.multiPoint.enabled[1].name", "Duplicate"},
		"nothing binds":          {"- {schedulerName: a, plugins: {bind: {disabled: [{name: DefaultBinder}]}}}", "profiles[0].plugins.bind", "leave DefaultBinder enabled"},
		"nothing sorts":          {"- {schedulerName: a, plugins: {queueSort: {disabled: [{name: '*'}]}}}", "profiles[0].plugins.queueSort", "has 0"},
		"a half":                 {"- {schedulerName: a, plugins: {filter: {enabled: [{name: TunnelReach}]}}, pluginConfig: [{name: TunnelReach, args: {mode: Require}}]}", "profiles[0].plugins.preFilter", "in part only"},
		"the other half":         {"- {schedulerName: a, plugins: {multiPoint: {enabled: [{name: ForeignNominations}]}, filter: {disabled: [{name: ForeignNominations}]}}}", "profiles[0].plugins.filter", "in part only"},
		"barrier at the start":   {"- {schedulerName: a, plugins: {multiPoint: {enabled: [{name: FailoverBarrier}]}, preBind: {enabled: [{name: FailoverBarrier}]}}}", "profiles[0].plugins.preBind", "runs before VolumeBinding, DynamicResources and would not look again"},
		"barrier in the middle":  {"- {schedulerName: a, plugins: {multiPoint: {enabled: [{name: FailoverBarrier}], disabled: [{name: VolumeBinding}]}, preBind: {enabled: [{name: VolumeBinding}]}}}", "profiles[0].plugins.preBind", "runs before VolumeBinding and"},
		"barrier at the end":     {"- {schedulerName: a, plugins: {multiPoint: {enabled: [{name: FailoverBarrier}]}, preBind: {enabled: [{name: VolumeBinding}]}}}", "", ""},
		"without a score":        {"- {schedulerName: a, plugins: {multiPoint: {enabled: [{name: TunnelReach}]}, score: {disabled: [{name: TunnelReach}]}}}", "", ""},
		"negative weight":        {"- {schedulerName: a, plugins: {multiPoint: {enabled: [{name: NodeAffinity, weight: -2}]}}}", "profiles[0].plugins.multiPoint.enabled[0].weight", "at least 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs, err := profilecheck.CheckFile([]byte(head+tc.profile), profilecheck.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == "" {
				if len(errs) > 0 {
					t.Error(errs.ToAggregate())
				}
				return
			}
			if len(errs) != 1 || errs[0].Field != tc.field || !strings.Contains(errs[0].Error(), tc.want) {
				t.Errorf("got %v, want %s: %s", errs, tc.field, tc.want)
			}
		})
	}
	if _, errs, err := profilecheck.CheckFile([]byte(head+"- {schedulerName: a, plugins: {score: {enabled: [{name: Nobody}]}}}"), profilecheck.Options{AnyPlugin: true}); err != nil || len(errs) > 0 {
		t.Errorf("an image of one's own: %v %v", errs, err)
	}
	if _, _, err := profilecheck.CheckFile([]byte(head+"- {schedulerNames: a}"), profilecheck.Options{}); err == nil {
		t.Error("an unknown field was accepted")
	}
}

func TestCheckVersion(t *testing.T) {
	for _, tc := range []struct {
		scheduler, server string
		newer             bool
	}{
		{"v1.36.3", "v1.36.3", false}, {"v1.36.3", "v1.36.0", false}, {"v1.36.3", "v1.37.0", false}, {"v1.36.3", "v2.0.0", false},
		{"v1.36.3", "v1.35.9", true}, {"v1.36.3", "v1.35.9-eks-1234+5", true}, {"v2.0.0", "v1.99.0", true}, {"v1.36.0-rc.1", "v1.36.0", false},
	} {
		err := profilecheck.CheckVersion(tc.scheduler, tc.server)
		if errors.Is(err, profilecheck.ErrNewer) != tc.newer || !tc.newer && err != nil {
			t.Errorf("%s and %s: %v", tc.scheduler, tc.server, err)
		}
		if tc.newer && !strings.Contains(err.Error(), "upgrade the control plane first") {
			t.Errorf("no remedy in %v", err)
		}
	}
	for _, bad := range [][]string{{"", "v1.36.0"}, {"v1.36.0", "latest"}} {
		if err := profilecheck.CheckVersion(bad[0], bad[1]); err == nil || errors.Is(err, profilecheck.ErrNewer) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
