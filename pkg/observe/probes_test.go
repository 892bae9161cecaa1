// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check/incluster"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// collectorOf looks at an API server at this URL.
func collectorOf(t *testing.T, host string) *collector {
	t.Helper()
	b := (&v1alpha1.Bundle{}).Defaulted()
	cfg := &rest.Config{Host: host, QPS: -1}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &collector{Target: Target{Limit: 2 * time.Second}, cfg: cfg, client: client,
		s: &Snapshot{Bundle: b, Names: incluster.NamesOf(b), Kubelets: map[string]error{}}}
}

// serverOn is a konnectivity-server's static Pod on a node, with its health port on loopback.
func serverOn(hostIP, port string) Program {
	p := pod("kube-system", "x/konnectivity-server:v1", nil, "konnectivity-server", "--health-bind-address=127.0.0.1", "--health-port="+port)
	p.Spec.HostNetwork, p.Status.HostIP = true, hostIP
	return programsOf([]corev1.Pod{p}, incluster.Names{})[0]
}

// TestLoopback proves that the metrics of a server of this machine are read on loopback while neither tunnel nor API server carries a
// port-forward, and that of another node's server it is said that the tunnel is down.
func TestLoopback(t *testing.T) {
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "# TYPE %s gauge\n%s 3\n", MetricBackends, MetricBackends)
	}))
	t.Cleanup(metrics.Close)
	_, port, err := net.SplitHostPort(metrics.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := collectorOf(t, "http://127.0.0.1:"+daemontest.Ports(t, 1)[0]) // nothing listens
	c.s.DaemonSets = Known([]appsv1.DaemonSet{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "konnectivity-agent"},
		Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: pod("", "x/konnectivity-agent:v1", nil, "konnectivity-agent").Spec}}}})
	m, err := c.serverMetrics(t.Context(), serverOn("127.0.0.1", port))
	if n, _ := m.Sum(MetricBackends, nil); err != nil || n != 3 {
		t.Errorf("this machine's: %v, %v", n, err)
	}
	if _, err := c.serverMetrics(t.Context(), serverOn("203.0.113.9", port)); err == nil || !strings.Contains(err.Error(), "the tunnel is down") {
		t.Errorf("another node's: %v", err)
	}
	scheduler := serverOn("203.0.113.9", port)
	if _, err := c.replicaMetrics(t.Context(), scheduler); err == nil || !strings.Contains(err.Error(), "the tunnel is down") {
		t.Errorf("a scheduler's: %v", err)
	}
	c.s.DaemonSets.Value = nil
	if _, err := c.serverMetrics(t.Context(), serverOn("203.0.113.9", port)); err == nil || strings.Contains(err.Error(), "the tunnel is down") {
		t.Errorf("without agents: %v", err)
	}
}

// TestKubelets proves that kubelets that were not asked before the limit are neither good nor bad, that one that was asked and does not answer is
// bad, and that the probe ends in time.
func TestKubelets(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	end := make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		node := strings.Split(r.URL.Path, "/")[4]
		mu.Lock()
		asked = append(asked, node)
		mu.Unlock()
		if strings.HasPrefix(node, "hangs") {
			select {
			case <-r.Context().Done():
			case <-end:
			}
		}
		_, _ = w.Write([]byte("ok"))
	}))
	t.Cleanup(func() { close(end); api.Close() })
	c := collectorOf(t, api.URL)
	const good, hanging, late = 10, kubeletsTogether, 40
	for i := range good + hanging + late {
		name := fmt.Sprintf("late-%d", i)
		if i < good {
			name = fmt.Sprintf("good-%d", i)
		} else if i < good+hanging {
			name = fmt.Sprintf("hangs-%d", i)
		}
		c.s.Nodes.Value = append(c.s.Nodes.Value, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	}
	begin := time.Now()
	c.round(t.Context(), c.kubelets)
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
	if len(c.s.Kubelets)+len(c.s.Unasked) != good+hanging+late {
		t.Errorf("%d answers and %d not asked", len(c.s.Kubelets), len(c.s.Unasked))
	}
	mu.Lock()
	defer mu.Unlock()
	bad := 0
	for node, err := range c.s.Kubelets {
		if err != nil {
			bad++
		}
		if hangs := strings.HasPrefix(node, "hangs"); hangs != (err != nil) || !slices.Contains(asked, node) {
			t.Errorf("%s: %v", node, err)
		}
	}
	if bad == 0 || len(c.s.Unasked) == 0 {
		t.Errorf("%d do not answer, %d were not asked", bad, len(c.s.Unasked))
	}
}

// TestStuckSource proves that a source that does not end with its context delays no round, and changes nothing later.
func TestStuckSource(t *testing.T) { synctest.Test(t, testStuckSource) }

func testStuckSource(t *testing.T) {
	c := collectorOf(t, "http://127.0.0.1:1")
	c.Limit = 50 * time.Millisecond
	end := make(chan struct{})
	fact := Known(1)
	c.round(t.Context(), into(&fact, func(context.Context) (int, error) { <-end; return 2, nil }))
	if fact.Value != 0 || fact.Err == nil || !strings.Contains(fact.Err.Error(), "no answer in time") {
		t.Errorf("got %+v", fact)
	}
	close(end)
	synctest.Wait()
	if fact.Value != 0 {
		t.Errorf("later: %+v", fact)
	}
}

// TestNoLateKubelet proves that no call begins after the last moment, although one that could ask is free.
func TestNoLateKubelet(t *testing.T) {
	names := make(chan string, 100)
	late := make(chan time.Time, 1)
	for range 50 { // a select would choose the free one half of the time
		if passOn(t.Context(), names, "n", time.Now().Add(-time.Second), late) {
			t.Fatal("a call begins after the last moment")
		}
	}
	if !passOn(t.Context(), names, "n", time.Now().Add(time.Minute), late) {
		t.Error("no call begins before the last moment")
	}
}

// TestManyKubelets proves that ready nodes beyond those that are asked are named as not asked, and nodes that are not ready are not.
func TestManyKubelets(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }))
	t.Cleanup(api.Close)
	c := collectorOf(t, api.URL)
	c.Limit = time.Minute
	for i := range MaxKubelets + 3 {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}}
		if i != 7 {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}
		c.s.Nodes.Value = append(c.s.Nodes.Value, n)
	}
	c.round(t.Context(), c.kubelets)
	if want := []string{fmt.Sprintf("n%d", MaxKubelets+1), fmt.Sprintf("n%d", MaxKubelets+2)}; !slices.Equal(c.s.Unasked, want) || len(c.s.Kubelets) != MaxKubelets {
		t.Errorf("%d asked, not asked %v, want %v", len(c.s.Kubelets), c.s.Unasked, want)
	}
}

// TestRead proves that each source notes when it was read, not when the slowest one of its round or of a later round was.
func TestRead(t *testing.T) { synctest.Test(t, testRead) }

func testRead(t *testing.T) {
	c := collectorOf(t, "http://127.0.0.1:1")
	c.Limit = time.Minute
	var quick, slow Fact[int]
	returned := make(chan struct{})
	value := func(context.Context) (int, error) { close(returned); return 1, nil }
	c.round(t.Context(), into(&quick, value), into(&slow, func(context.Context) (int, error) { <-returned; time.Sleep(time.Second); return 2, nil }))
	if gap := slow.Read.Sub(quick.Read); quick.Read.IsZero() || gap != time.Second {
		t.Errorf("read %s apart, the first at %s", gap, quick.Read)
	}
}
