// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/failoverbarrier"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/foreignnominations"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/politepreemption"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/profilecheck"
)

// TestInformers makes a scheduler with each plugin alone, and compares the informers that it starts with those that Needs
// returns. TestRenderedRights of pkg/scheduler has TunnelReach, whose informers need an API server.
func TestInformers(t *testing.T) {
	plugins := []string{
		names.DefaultPreemption, names.DynamicResources, names.GangScheduling, names.ImageLocality, names.InterPodAffinity, names.NodeAffinity,
		names.NodeDeclaredFeatures, names.NodeName, names.NodePorts, names.NodeResourcesBalancedAllocation, names.NodeResourcesFit,
		names.NodeUnschedulable, names.NodeVolumeLimits, names.PodGroupPodsCount, names.PodTopologySpread, names.SchedulingGates,
		names.TaintToleration, names.TopologyPlacementGenerator, names.VolumeBinding, names.VolumeRestrictions, names.VolumeZone,
		failoverbarrier.Name, foreignnominations.Name, politepreemption.Name,
	}
	for name, gates := range map[string]map[featuregate.Feature]bool{
		"default gates": {},
		"more gates":    {features.DRADeviceTaintRules: true, features.GenericWorkload: true},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, gates)
			given := map[string]bool{}
			for gate, on := range gates {
				given[string(gate)] = on
			}
			for _, plugin := range append([]string{""}, plugins...) {
				enabled := slices.DeleteFunc([]string{names.PrioritySort, names.DefaultBinder, plugin}, func(name string) bool { return name == "" })
				configuration := fmt.Appendf(nil, "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"+
					"- {schedulerName: a, plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: %s}]}}}\n", strings.Join(enabled, "}, {name: "))
				if diff := gocmp.Diff(sets.List(informersIn(t, configuration, given)), sets.List(started(t, configuration))); diff != "" {
					t.Errorf("the informers of needs.go are not those of a scheduler with plugin %q (-needs +scheduler):\n%s", plugin, diff)
				}
			}
		})
	}
}

// started are the resources that the informers of a scheduler read.
func started(t *testing.T, configuration []byte) sets.Set[string] {
	t.Helper()
	loaded, err := profilecheck.Load(configuration)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := fake.NewClientset()
	factory := kubescheduler.NewInformerFactory(client, 0)
	recorder := profile.NewRecorderFactory(events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()}))
	if _, err := kubescheduler.New(ctx, client, factory, nil, recorder, kubescheduler.WithProfiles(loaded.Profiles...),
		kubescheduler.WithKubeConfig(&rest.Config{Host: "127.0.0.1:1"}), kubescheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{
			failoverbarrier.Name: failoverbarrier.New, foreignnominations.Name: foreignnominations.New, politepreemption.Name: politepreemption.New,
		})); err != nil {
		t.Fatalf("make a scheduler from %s: %v", configuration, err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	read := sets.New[string]()
	for _, a := range client.Actions() {
		// An informer has synced when it has listed, by a list or as the beginning of a watch.
		if a.GetVerb() == "list" || a.GetVerb() == "watch" {
			read.Insert(a.GetResource().Resource + "." + a.GetResource().Group)
		}
	}
	cancel()
	factory.Shutdown()
	return read
}

// informersIn are the resources that a scheduler with a configuration needs to watch.
func informersIn(t *testing.T, configuration []byte, gates map[string]bool) sets.Set[string] {
	t.Helper()
	needs, err := scheduler.Needs(configuration, gates, "")
	if err != nil {
		t.Fatal(err)
	}
	resources := map[string]sets.Set[string]{"list": sets.New[string](), "watch": sets.New[string]()}
	for _, rule := range needs {
		for _, verb := range rule.Verbs {
			for _, resource := range rule.Resources {
				if of, reads := resources[verb]; reads {
					of.Insert(resource + "." + rule.APIGroups[0])
				}
			}
		}
	}
	if !resources["list"].Equal(resources["watch"]) {
		t.Errorf("an informer lists and watches: %v", resources)
	}
	return resources["watch"]
}
