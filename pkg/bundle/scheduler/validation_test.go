// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestFlagsThatTheFileReplaces: SCHED-24, extraArgs must not set a flag that kube-scheduler ignores when it has a configuration
// file, nor a flag of leader election, which would override the file. The list comes from kube-scheduler's own flags, so that
// the test also fails when another version of Kubernetes ignores one more.
func TestFlagsThatTheFileReplaces(t *testing.T) {
	var flags []string
	for _, set := range options.NewOptions().Flags.FlagSets {
		set.VisitAll(func(f *pflag.Flag) {
			if strings.Contains(f.Usage, "ignored if a config file is specified") || strings.HasPrefix(f.Name, "leader-elect") {
				flags = append(flags, f.Name)
			}
		})
	}
	for _, known := range []string{"kubeconfig", "kube-api-qps", "kube-api-burst", "kube-api-content-type", "profiling", "contention-profiling", "leader-elect"} {
		if !slices.Contains(flags, known) {
			t.Errorf("kube-scheduler does not mark --%s any more: the test tests too little", known)
		}
	}
	for _, name := range flags {
		b := v1alpha1.New()
		b.Scheduler.ExtraArgs = []v1alpha1.Argument{{Name: name, Value: "1"}}
		errs := scheduler.Validate(b)
		if len(errs) != 1 || errs[0].Field != "spec.scheduler.extraArgs[0].name" {
			t.Errorf("--%s: got %v, want one error at spec.scheduler.extraArgs[0].name", name, errs)
		}
		if name == "leader-elect" && len(errs) == 1 && !strings.Contains(errs[0].Detail, "scheduler.leaderElection.leaderElect") {
			t.Errorf("--%s: the error does not name the field: %v", name, errs[0])
		}
	}
	b := v1alpha1.New()
	b.Scheduler.ExtraArgs = []v1alpha1.Argument{{Name: "v", Value: "1"}}
	if errs := scheduler.Validate(b); len(errs) > 0 {
		t.Errorf("a flag that kube-scheduler reads: %v", errs)
	}
}
