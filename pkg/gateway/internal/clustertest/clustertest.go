// SPDX-License-Identifier: Apache-2.0

// Package clustertest makes the objects of a small cluster in a real API server or in a fake clientset, and serves
// the kubelet of its nodes.
package clustertest

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// Cluster is an API server without controllers: a real one, or a fake clientset.
type Cluster struct {
	*daemontest.ControlPlane
	// Config has all rights. A fake has none.
	Config *rest.Config
	t      testing.TB
}

// Start runs a real API server for as long as the test.
func Start(t *testing.T, args ...string) *Cluster {
	t.Helper()
	// There is no controller that makes service accounts.
	plane := daemontest.StartControlPlane(t, append([]string{"--disable-admission-plugins=ServiceAccount", "--kubelet-preferred-address-types=InternalIP"}, args...)...)
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	c := &Cluster{ControlPlane: plane, Config: config, t: t}
	daemontest.Eventually(t, time.Minute, func() error {
		_, err := plane.Client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	return c
}

// As returns a configuration with a user's rights.
func (c *Cluster) As(user string) *rest.Config {
	config := rest.CopyConfig(c.Config)
	config.Impersonate.UserName = user
	return config
}

// ClientAs returns a client with a user's rights.
func (c *Cluster) ClientAs(user string) kubernetes.Interface {
	c.t.Helper()
	if c.Config == nil {
		return c.fakeAs(user)
	}
	client, err := kubernetes.NewForConfig(c.As(user))
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

// Counted returns a client with all rights, and the number of its requests.
func (c *Cluster) Counted() (client kubernetes.Interface, requests *atomic.Int64) {
	c.t.Helper()
	requests = new(atomic.Int64)
	if c.Config == nil {
		return c.fakeBehind(func(clienttesting.Action) error {
			requests.Add(1)
			return nil
		}), requests
	}
	config := rest.CopyConfig(c.Config)
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			requests.Add(1)
			return rt.RoundTrip(req)
		})
	})
	client, err := kubernetes.NewForConfig(config)
	c.check(err)
	return client, requests
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Eventually waits until condition returns nil: a real API server evaluates RBAC and answers lists from caches. A fake has to meet the condition at once.
func (c *Cluster) Eventually(t testing.TB, condition func() error) {
	t.Helper()
	if c.Config != nil {
		testutil.Eventually(t, time.Minute, condition)
	} else if err := condition(); err != nil {
		t.Fatal(err)
	}
}

// Namespace makes a namespace.
func (c *Cluster) Namespace(name string) {
	c.t.Helper()
	_, err := c.Client.CoreV1().Namespaces().Create(c.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	c.check(err)
}

// Node makes a node with an internal address and further settings.
func (c *Cluster) Node(name, addr string, edit ...func(*corev1.Node)) {
	c.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr}, {Type: corev1.NodeHostName, Address: name}}
	for _, f := range edit {
		f(n)
	}
	status := n.Status
	made, err := c.Client.CoreV1().Nodes().Create(c.t.Context(), n, metav1.CreateOptions{})
	c.check(err)
	made.Status = status
	made, err = c.Client.CoreV1().Nodes().UpdateStatus(c.t.Context(), made, metav1.UpdateOptions{})
	c.check(err)
	cached(c, made, c.Client.CoreV1().Nodes().Get)
}

// Pod makes a ready Pod on a node.
func (c *Cluster) Pod(namespace, name, node string, ips []string, edit ...func(*corev1.Pod)) {
	c.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "example.com/main"}}},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, ip := range ips {
		p.Status.PodIP = ips[0]
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	for _, f := range edit {
		f(p)
	}
	status := p.Status
	made, err := c.Client.CoreV1().Pods(namespace).Create(c.t.Context(), p, metav1.CreateOptions{})
	c.check(err)
	made.Status = status
	made, err = c.Client.CoreV1().Pods(namespace).UpdateStatus(c.t.Context(), made, metav1.UpdateOptions{})
	c.check(err)
	cached(c, made, c.Client.CoreV1().Pods(namespace).Get)
}

// Service makes a Service.
func (c *Cluster) Service(namespace, name string, spec corev1.ServiceSpec) *corev1.Service {
	c.t.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
	s, err := c.Client.CoreV1().Services(namespace).Create(c.t.Context(), s, metav1.CreateOptions{})
	c.check(err)
	cached(c, s, c.Client.CoreV1().Services(namespace).Get)
	return s
}

// Slice makes an EndpointSlice of a Service.
func (c *Cluster) Slice(namespace, service, name string, family discoveryv1.AddressType, ports []discoveryv1.EndpointPort, endpoints ...discoveryv1.Endpoint) {
	c.t.Helper()
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: family, Ports: ports, Endpoints: endpoints,
	}
	s, err := c.Client.DiscoveryV1().EndpointSlices(namespace).Create(c.t.Context(), s, metav1.CreateOptions{})
	c.check(err)
	cached(c, s, c.Client.DiscoveryV1().EndpointSlices(namespace).Get)
}

// Port is a port of an EndpointSlice.
func Port(name string, number int32) discoveryv1.EndpointPort {
	protocol := corev1.ProtocolTCP
	return discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: &protocol}
}

// Endpoint is an endpoint that a Pod stands behind.
func Endpoint(namespace, pod, addr string, ready bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses:  []string{addr},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: pod},
	}
}

// cached waits until the API server's watch cache has what was written: it answers lists that may be old, as those of
// package resolve.
func cached[T metav1.Object](c *Cluster, made T, get func(context.Context, string, metav1.GetOptions) (T, error)) {
	c.t.Helper()
	daemontest.Eventually(c.t, time.Minute, func() error {
		_, err := get(c.t.Context(), made.GetName(), metav1.GetOptions{ResourceVersion: made.GetResourceVersion()})
		return err
	})
}

func (c *Cluster) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}
