// SPDX-License-Identifier: Apache-2.0

package profilecheck_test

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/failoverbarrier"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/foreignnominations"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/politepreemption"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/tunnelreach"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/profilecheck"
)

// interfaces are those of the extension points, by their names in a profile.
var interfaces = map[string]reflect.Type{
	"preEnqueue": reflect.TypeFor[fwk.PreEnqueuePlugin](), "queueSort": reflect.TypeFor[fwk.QueueSortPlugin](),
	"preFilter": reflect.TypeFor[fwk.PreFilterPlugin](), "filter": reflect.TypeFor[fwk.FilterPlugin](),
	"postFilter": reflect.TypeFor[fwk.PostFilterPlugin](), "preScore": reflect.TypeFor[fwk.PreScorePlugin](),
	"score": reflect.TypeFor[fwk.ScorePlugin](), "reserve": reflect.TypeFor[fwk.ReservePlugin](),
	"permit": reflect.TypeFor[fwk.PermitPlugin](), "preBind": reflect.TypeFor[fwk.PreBindPlugin](),
	"bind": reflect.TypeFor[fwk.BindPlugin](), "postBind": reflect.TypeFor[fwk.PostBindPlugin](),
	"placementGenerate": reflect.TypeFor[fwk.PlacementGeneratePlugin](), "placementScore": reflect.TypeFor[fwk.PlacementScorePlugin](),
}

// TestExtensionPoints compares what profilecheck says of plugins with the plugins themselves: each is made as
// kube-scheduler makes it, and asked what it implements.
func TestExtensionPoints(t *testing.T) {
	made := makePlugins(t)
	for name, plugin := range made {
		var want []string
		for point, iface := range interfaces {
			if reflect.TypeOf(plugin).Implements(iface) {
				want = append(want, point)
			}
		}
		slices.Sort(want)
		got := slices.Sorted(slices.Values(profilecheck.ExtensionPoints(name)))
		if !slices.Equal(got, want) {
			t.Errorf("%s is known for %q, and implements %q", name, got, want)
		}
	}
}

// makePlugins makes a framework in which every plugin is enabled.
func makePlugins(t *testing.T) map[string]fwk.Plugin {
	t.Helper()
	metrics.Register()
	registry := plugins.NewInTreeRegistry()
	if err := registry.Merge(frameworkruntime.Registry{
		tunnelreach.Name: tunnelreach.New, politepreemption.Name: politepreemption.New,
		foreignnominations.Name: foreignnominations.New, failoverbarrier.Name: failoverbarrier.New,
	}); err != nil {
		t.Fatal(err)
	}
	loaded, err := profilecheck.Load([]byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"))
	if err != nil {
		t.Fatal(err)
	}
	profile := &loaded.Profiles[0]
	made := map[string]fwk.Plugin{}
	for name, factory := range registry {
		registry[name] = func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			p, err := factory(ctx, args, h)
			made[name] = p
			return p, err
		}
		if !profilecheck.EnabledPlugins(profile).Has(name) {
			profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, config.Plugin{Name: name})
		}
	}
	client := fake.NewClientset()
	informerFactory := informers.NewSharedInformerFactory(client, 0)
	if _, err := frameworkruntime.NewFramework(t.Context(), registry, profile,
		frameworkruntime.WithClientSet(client), frameworkruntime.WithKubeConfig(&rest.Config{Host: "127.0.0.1:1"}),
		frameworkruntime.WithInformerFactory(informerFactory), frameworkruntime.WithEventRecorder(events.NewFakeRecorder(1)),
		frameworkruntime.WithSnapshotSharedLister(internalcache.NewEmptySnapshot()),
		frameworkruntime.WithPodNominator(internalqueue.NewSchedulingQueue(nil, informerFactory)),
	); err != nil {
		t.Fatal(err)
	}
	if len(made) != len(registry) {
		t.Fatalf("%d of %d plugins were made", len(made), len(registry))
	}
	return made
}
