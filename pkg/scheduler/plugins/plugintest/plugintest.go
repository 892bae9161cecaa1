// Package plugintest runs one plugin in kube-scheduler's own framework, with a snapshot, a nominator and informers that
// are filled from given pods and nodes. Start at [New].
package plugintest

import (
	"context"
	"sync"
	"testing"

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
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	testframework "k8s.io/kubernetes/pkg/scheduler/testing/framework"
)

// Profile is the schedulerName of the plugin under test.
const Profile = "ours"

// Cluster is what a plugin sees.
type Cluster struct {
	Framework framework.Framework
	Client    *fake.Clientset
	Events    *events.FakeRecorder
	Plugin    fwk.Plugin

	mu        sync.Mutex
	activated []string
}

// New makes a cluster of these nodes and pods with a plugin at these extension points, beside NodeResourcesFit. All pods are in the
// informers, the bound ones in the snapshot, too, and the own ones that are nominated in the nominator.
func New(t *testing.T, name string, factory frameworkruntime.PluginFactory, args string, nodes []*corev1.Node, pods []*corev1.Pod, points ...string) *Cluster {
	t.Helper()
	metrics.Register()
	var objects []runtime.Object
	for _, n := range nodes {
		objects = append(objects, n)
	}
	var bound []*corev1.Pod
	for _, p := range pods {
		objects = append(objects, p)
		if p.Spec.NodeName != "" {
			bound = append(bound, p)
		}
	}
	c := &Cluster{Client: fake.NewClientset(objects...), Events: events.NewFakeRecorder(100)}
	informerFactory := informers.NewSharedInformerFactory(c.Client, 0)
	nominator := internalqueue.NewSchedulingQueue(nil, informerFactory)
	capture := func(ctx context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		var obj runtime.Object
		if args != "" {
			obj = &runtime.Unknown{Raw: []byte(args)}
		}
		p, err := factory(ctx, obj, h)
		c.Plugin = p
		return p, err
	}
	fit := frameworkruntime.FactoryAdapter(feature.Features{}, noderesources.NewFit)
	var err error
	c.Framework, err = testframework.NewFramework(t.Context(), []testframework.RegisterPluginFunc{
		testframework.RegisterQueueSortPlugin(queuesort.Name, queuesort.New),
		testframework.RegisterBindPlugin(defaultbinder.Name, defaultbinder.New),
		testframework.RegisterPluginAsExtensions(noderesources.Name, fit, "PreFilter", "Filter"),
		testframework.RegisterPluginAsExtensions(name, capture, points...),
	}, Profile,
		frameworkruntime.WithClientSet(c.Client), frameworkruntime.WithKubeConfig(&rest.Config{Host: "127.0.0.1:1"}),
		frameworkruntime.WithInformerFactory(informerFactory), frameworkruntime.WithEventRecorder(recorder{c.Events}),
		frameworkruntime.WithSnapshotSharedLister(internalcache.NewSnapshot(bound, nodes)),
		frameworkruntime.WithPodNominator(nominator), frameworkruntime.WithPodActivator(c),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()), frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
	)
	if err != nil {
		t.Fatal(err)
	}
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
