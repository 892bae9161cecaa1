// SPDX-License-Identifier: Apache-2.0

// Package plugintest runs one plugin in kube-scheduler's own framework, with a snapshot, a nominator and informers that
// are filled from given pods and nodes. Start at [New].
package plugintest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeports"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	testframework "k8s.io/kubernetes/pkg/scheduler/testing/framework"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// Profile is the schedulerName of the plugin under test.
const Profile = "ours"

// Cluster is what a plugin sees.
type Cluster struct {
	Framework framework.Framework
	Client    *fake.Clientset
	Events    *events.FakeRecorder
	Plugin    fwk.Plugin

	snapshot *internalcache.Snapshot

	mu        sync.Mutex
	activated []string
}

// Plugin is one to run, at these extension points.
type Plugin struct {
	Name    string
	Factory frameworkruntime.PluginFactory
	// Args are JSON, "" for none.
	Args   string
	Points []string
}

// Counting are the in-tree filters, in addition to NodeResourcesFit, to whom other pods matter.
func Counting() []Plugin {
	points := []string{"PreFilter", "Filter"}
	return []Plugin{
		{Name: nodeports.Name, Factory: frameworkruntime.FactoryAdapter(feature.Features{}, nodeports.New), Points: points},
		{Name: interpodaffinity.Name, Factory: frameworkruntime.FactoryAdapter(feature.Features{}, interpodaffinity.New), Points: points},
		{Name: podtopologyspread.Name, Factory: frameworkruntime.FactoryAdapter(feature.Features{}, podtopologyspread.New), Points: points},
	}
}

// New makes a cluster of these nodes and pods with a plugin at these extension points, in addition to NodeResourcesFit. All pods
// are in the informers, the bound ones in the snapshot, too, and the own ones that are nominated in the nominator.
func New(t *testing.T, name string, factory frameworkruntime.PluginFactory, args string, nodes []*corev1.Node, pods []*corev1.Pod, points ...string) *Cluster {
	t.Helper()
	return NewWith(t, nodes, pods, nil, Plugin{name, factory, args, points})
}

// NewWith is New for several plugins, the first of which is Cluster.Plugin, and further objects.
func NewWith(t *testing.T, nodes []*corev1.Node, pods []*corev1.Pod, further []runtime.Object, plugins ...Plugin) *Cluster {
	t.Helper()
	metrics.Register()
	objects := slices.Clone(further)
	for _, n := range nodes {
		objects = append(objects, n)
	}
	for _, p := range pods {
		objects = append(objects, p)
	}
	c := &Cluster{Client: fake.NewClientset(objects...), Events: events.NewFakeRecorder(100)}
	c.SetSnapshot(pods, nodes)
	informerFactory := informers.NewSharedInformerFactory(c.Client, 0)
	nominator := internalqueue.NewSchedulingQueue(nil, informerFactory)
	c.makeFramework(t, informerFactory, nominator, plugins)
	informerFactory.Start(t.Context().Done())
	informerFactory.WaitForCacheSync(t.Context().Done())
	for _, p := range pods {
		if p.Spec.SchedulerName == Profile && p.Status.NominatedNodeName != "" && p.Spec.NodeName == "" {
			info, err := framework.NewPodInfo(p)
			if err != nil {
				t.Fatal(err)
			}
			nominator.AddNominatedPod(klog.Background(), info, nil)
		}
	}
	return c
}

func (c *Cluster) makeFramework(t *testing.T, informerFactory informers.SharedInformerFactory, nominator fwk.PodNominator, plugins []Plugin) {
	t.Helper()
	registrations := []testframework.RegisterPluginFunc{
		testframework.RegisterQueueSortPlugin(queuesort.Name, queuesort.New),
		testframework.RegisterBindPlugin(defaultbinder.Name, defaultbinder.New),
		testframework.RegisterPluginAsExtensions(noderesources.Name,
			frameworkruntime.FactoryAdapter(feature.Features{}, noderesources.NewFit), "PreFilter", "Filter"),
	}
	for i, plugin := range plugins {
		registrations = append(registrations, testframework.RegisterPluginAsExtensions(plugin.Name, c.capture(plugin, i == 0), plugin.Points...))
	}
	var err error
	c.Framework, err = testframework.NewFramework(t.Context(), registrations, Profile,
		frameworkruntime.WithClientSet(c.Client), frameworkruntime.WithKubeConfig(&rest.Config{Host: "127.0.0.1:1"}),
		frameworkruntime.WithInformerFactory(informerFactory), frameworkruntime.WithEventRecorder(recorder{c.Events}),
		frameworkruntime.WithSnapshotSharedLister(c),
		frameworkruntime.WithPodNominator(nominator), frameworkruntime.WithPodActivator(c),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()), frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// capture gives a plugin its arguments and keeps the one under test.
func (c *Cluster) capture(plugin Plugin, keep bool) frameworkruntime.PluginFactory {
	return func(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		if plugin.Args != "" {
			obj = &runtime.Unknown{Raw: []byte(plugin.Args)}
		}
		p, err := plugin.Factory(ctx, obj, h)
		if keep {
			c.Plugin = p
		}
		return p, err
	}
}

// SetSnapshot makes these pods, as far as they are bound, and nodes what the next cycle sees.
func (c *Cluster) SetSnapshot(pods []*corev1.Pod, nodes []*corev1.Node) {
	var bound []*corev1.Pod
	for _, p := range pods {
		if p.Spec.NodeName != "" {
			bound = append(bound, p)
		}
	}
	c.snapshot = internalcache.NewSnapshot(bound, nodes)
}

// NodeInfos implements fwk.SharedLister.
func (c *Cluster) NodeInfos() fwk.NodeInfoLister { return c.snapshot.NodeInfos() }

// StorageInfos implements fwk.SharedLister.
func (c *Cluster) StorageInfos() fwk.StorageInfoLister { return c.snapshot.StorageInfos() }

// PodGroupStates implements fwk.SharedLister.
func (c *Cluster) PodGroupStates() fwk.PodGroupStateLister { return c.snapshot.PodGroupStates() }

// recorder has a logger, as the scheduler's.
type recorder struct{ *events.FakeRecorder }

func (r recorder) WithLogger(klog.Logger) events.EventRecorderLogger { return r }

// Activate implements fwk.PodActivator.
func (c *Cluster) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range pods {
		c.activated = append(c.activated, p.Name)
	}
}

// Activated are the names of the pods that were activated so far.
func (c *Cluster) Activated() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.activated...)
}

// Filter runs PreFilter and Filter of all plugins for a pod, and returns what each node says: "" fits. If PreFilter
// rejects the pod, all nodes say why.
func (c *Cluster) Filter(t *testing.T, pod *corev1.Pod) (map[string]string, fwk.CycleState) {
	t.Helper()
	nodes, err := c.Framework.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		t.Fatal(err)
	}
	state := framework.NewCycleState()
	result := map[string]string{}
	_, status, _ := c.Framework.RunPreFilterPlugins(t.Context(), state, pod)
	for _, node := range nodes {
		s := status
		if s.IsSuccess() {
			s = c.Framework.RunFilterPlugins(t.Context(), state, pod, node)
		}
		result[node.Node().Name] = s.Message()
	}
	return result, state
}

// Eventually waits until something holds, for ten seconds at least.
func Eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	testutil.Eventually(t, time.Minute, func() error {
		if !is() {
			return errors.New("waited in vain for " + what)
		}
		return nil
	})
}
