// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// stubAPI stands in for an API server whose every part can be broken, which a real one cannot: it stores whatever is put into it, binds pods as its
// scheduler func says, and counts dials as a tunnel would. The end-to-end tests cover working clusters.
type stubAPI struct {
	*httptest.Server

	mu      sync.Mutex
	objects map[string]map[string]any // path -> object
	order   []string
	version int
	watches map[chan []byte]string // channel -> collection path

	// bind is called for every new pod and says to which node and by whom it is bound; "" for not at all.
	bind func(pod *corev1.Pod) (node, reporter string)
	// events is how many Scheduled events each binding makes.
	events int

	// tunneled makes calls raise the counters; instance is the process's start time.
	tunneled, egress            bool
	dials, failures, serverDial float64
	packets, instance           float64
	// answers of calls; empty for what works.
	log, healthz string
	corruptExec  bool
	skipWebhook  bool
	callError    string
	// lateNodes are the calls of the webhook, counted from 1, that use the agent of a node that does not know the Service yet.
	lateNodes    []int
	webhookCalls int
	// served is called with each object that is read by its path.
	served func(path string, obj map[string]any)
	// textOnly makes the API server return metrics as text only, never as protobuf.
	textOnly bool
}

func newStubAPI(t *testing.T) *stubAPI {
	t.Helper()
	a := &stubAPI{
		objects: map[string]map[string]any{}, watches: map[chan []byte]string{}, events: 1, tunneled: true, egress: true, instance: 1,
		log: "a line\n", healthz: "ok",
	}
	a.bind = func(pod *corev1.Pod) (string, string) { return "node-0", pod.Spec.SchedulerName }
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(func() { a.CloseClientConnections(); a.Close() })
	a.put("/api/v1/nodes/node-0", &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-0"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	})
	return a
}

// env returns an Env for the stub with short times.
func (a *stubAPI) env(t *testing.T) *Env {
	t.Helper()
	env := &Env{
		Config: &rest.Config{Host: a.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}},
		HostIP: ownIP(t), TakeoverLimit: 5 * time.Second, RecoveryLimit: time.Second,
		ServerMetrics: a.serverMetrics, Probe: Probe{PortForwardRaw: true},
		times: times{
			pending: 300 * time.Millisecond, podEvery: 20 * time.Millisecond, steady: 400 * time.Millisecond, settle: 50 * time.Millisecond, events: 50 * time.Millisecond,
			clear: time.Second, notice: 100 * time.Millisecond, programmed: 100 * time.Millisecond, try: 100 * time.Millisecond, again: time.Millisecond,
		},
	}
	if err := env.Complete(); err != nil {
		t.Fatal(err)
	}
	return env
}

func ownIP(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return "127.0.0.1" // the stub, unlike Kubernetes, accepts it
}

func toMap(obj any) map[string]any {
	data, _ := json.Marshal(obj)
	out := map[string]any{}
	_ = json.Unmarshal(data, &out)
	return out
}

func fromMap[T any](obj map[string]any) *T {
	out := new(T)
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(obj, out)
	return out
}

// put stores obj at path and notifies the watches.
func (a *stubAPI) put(path string, obj any) map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.putLocked(path, obj)
}

func (a *stubAPI) putLocked(path string, obj any) map[string]any {
	m := toMap(obj)
	a.version++
	meta, _ := m["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		m["metadata"] = meta
	}
	meta["resourceVersion"] = fmt.Sprint(a.version)
	event := "MODIFIED"
	if _, ok := a.objects[path]; !ok {
		a.order = append(a.order, path)
		event = "ADDED"
	}
	a.objects[path] = m
	data, _ := json.Marshal(map[string]any{"type": event, "object": m})
	for ch, collection := range a.watches {
		if strings.HasPrefix(path, collection+"/") {
			ch <- data
		}
	}
	return m
}

func (a *stubAPI) serve(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	switch {
	case path == "/metrics":
		writeMetrics(w, r, a.metrics(), a.textOnly)
	case path == "/version":
		_, _ = io.WriteString(w, `{"gitVersion":"v1.36.3"}`)
	case path == "/api" || path == "/readyz":
		_, _ = io.WriteString(w, `{}`)
	case strings.HasSuffix(path, "/log"):
		a.call(w, func() { _, _ = io.WriteString(w, a.log) })
	case strings.HasSuffix(path, "/proxy/healthz"):
		a.call(w, func() { _, _ = io.WriteString(w, a.healthz) })
	case strings.Contains(path, "/proxy/echo"):
		a.call(w, func() { a.proxyEcho(w, r) })
	case strings.HasSuffix(path, "/exec"):
		a.call(w, func() { a.exec(w, r) })
	case strings.HasSuffix(path, "/portforward"):
		a.call(w, func() { http.Error(w, "no port-forward here", http.StatusBadRequest) })
	case r.URL.Query().Get("watch") == "true":
		a.watch(w, r)
	case r.Method == http.MethodGet:
		a.get(w, path)
	case r.Method == http.MethodPost:
		a.create(w, r)
	case r.Method == http.MethodPut:
		a.update(w, r)
	case r.Method == http.MethodDelete:
		a.remove(w, path)
	default:
		http.Error(w, "unexpected "+r.Method+" "+path, http.StatusTeapot)
	}
}

// call handles the requests that need the tunnel.
func (a *stubAPI) call(w http.ResponseWriter, do func()) {
	a.mu.Lock()
	if a.tunneled {
		a.dials++
		a.serverDial++
		a.packets++
	}
	message := a.callError
	a.mu.Unlock()
	if message != "" {
		fail(w, http.StatusInternalServerError, message)
		return
	}
	do()
}

func (a *stubAPI) metrics() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := fmt.Sprintf("# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %g\n", a.instance)
	if a.egress {
		text += fmt.Sprintf("# TYPE %s counter\n%s{protocol=\"grpc\",transport=\"uds\"} %g\n", metricDialStart, metricDialStart, a.dials)
		text += fmt.Sprintf("# TYPE %s counter\n%s{protocol=\"grpc\",transport=\"uds\",stage=\"proxy\"} %g\n", metricDialFailure, metricDialFailure, a.failures)
	}
	return text
}

func (a *stubAPI) serverMetrics(context.Context) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Appendf(nil, "# TYPE %[1]s histogram\n%[1]s_bucket{le=\"+Inf\"} %[2]g\n%[1]s_sum 1\n%[1]s_count %[2]g\n# TYPE %[3]s counter\n%[3]s{segment=\"to_agent\",packet_type=\"DATA\"} %[4]g\n",
		metricServerDials, a.serverDial, metricServerPackets, a.packets), nil
}

func fail(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	reason := map[int]metav1.StatusReason{404: metav1.StatusReasonNotFound, 403: metav1.StatusReasonForbidden}[code]
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Message: message, Reason: reason, Code: int32(code)})
}

func reply(w http.ResponseWriter, obj any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(obj)
}

func (a *stubAPI) get(w http.ResponseWriter, path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if obj, ok := a.objects[path]; ok {
		if a.served != nil {
			a.served(path, obj)
		}
		reply(w, obj)
		return
	}
	items := []any{}
	for _, p := range a.order {
		if obj, ok := a.objects[p]; ok && strings.HasPrefix(p, path+"/") {
			items = append(items, obj)
		}
	}
	last := path[strings.LastIndex(path, "/")+1:]
	if len(items) == 0 && !slices.Contains([]string{"pods", "events", "nodes"}, last) {
		fail(w, http.StatusNotFound, path+" not found")
		return
	}
	reply(w, map[string]any{"metadata": map[string]any{"resourceVersion": fmt.Sprint(a.version)}, "items": items})
}

func (a *stubAPI) create(w http.ResponseWriter, r *http.Request) {
	obj := map[string]any{}
	_ = json.NewDecoder(r.Body).Decode(&obj)
	meta := obj["metadata"].(map[string]any)
	a.mu.Lock()
	a.version++
	if name, _ := meta["generateName"].(string); name != "" {
		meta["name"] = fmt.Sprintf("%s%d", name, a.version)
	}
	meta["uid"] = fmt.Sprintf("uid-%d", a.version)
	a.mu.Unlock()
	parts := strings.Split(r.URL.Path, "/")
	if len(parts) > 4 {
		meta["namespace"] = parts[len(parts)-2]
	}
	if strings.HasSuffix(r.URL.Path, "/configmaps") {
		if err := a.review(obj); err != nil {
			fail(w, http.StatusForbidden, err.Error())
			return
		}
	}
	if strings.HasSuffix(r.URL.Path, "/pods") && obj["spec"].(map[string]any)["schedulerName"] == nil {
		obj["spec"].(map[string]any)["schedulerName"] = stockSchedulerName
	}
	stored := a.put(r.URL.Path+"/"+meta["name"].(string), obj)
	reply(w, stored)
	if strings.HasSuffix(r.URL.Path, "/pods") {
		a.schedule(r.URL.Path, fromMap[corev1.Pod](stored))
	}
}

// schedule binds pod as bind says.
func (a *stubAPI) schedule(collection string, pod *corev1.Pod) {
	a.mu.Lock()
	bind := a.bind
	a.mu.Unlock()
	if node, reporter := bind(pod); node != "" {
		a.bindPod(collection, pod, node, reporter)
	}
}

func (a *stubAPI) bindPod(collection string, pod *corev1.Pod, node, reporter string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pod.Spec.NodeName, pod.Status.Phase = node, corev1.PodRunning
	a.putLocked(collection+"/"+pod.Name, pod)
	a.eventLocked(pod, reporter, "Binding", "Scheduled", a.events)
}

func (a *stubAPI) eventLocked(pod *corev1.Pod, reporter, action, reason string, n int) {
	for i := range n {
		name := fmt.Sprintf("%s.%s.%d", pod.Name, reporter, i)
		a.putLocked("/apis/events.k8s.io/v1/namespaces/"+pod.Namespace+"/events/"+name, map[string]any{
			"metadata": map[string]any{"name": name}, "reason": reason, "action": action, "reportingController": reporter,
			"regarding": map[string]any{"kind": "Pod", "name": pod.Name, "uid": string(pod.UID)},
		})
	}
}

// bindAll binds the pods that wait for scheduler.
func (a *stubAPI) bindAll(scheduler string) {
	a.mu.Lock()
	waiting := map[string]*corev1.Pod{}
	for path, obj := range a.objects {
		if !strings.Contains(path, "/pods/") {
			continue
		}
		if pod := fromMap[corev1.Pod](obj); pod.Spec.NodeName == "" && pod.Spec.SchedulerName == scheduler {
			waiting[path[:strings.LastIndex(path, "/")]+"\x00"+pod.Name] = pod
		}
	}
	a.mu.Unlock()
	for key, pod := range waiting {
		collection, _, _ := strings.Cut(key, "\x00")
		a.bindPod(collection, pod, "node-0", scheduler)
	}
}

func (a *stubAPI) update(w http.ResponseWriter, r *http.Request) {
	obj := map[string]any{}
	_ = json.NewDecoder(r.Body).Decode(&obj)
	reply(w, a.put(strings.TrimSuffix(r.URL.Path, "/status"), obj))
}

func (a *stubAPI) remove(w http.ResponseWriter, path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.objects, func(p string, _ map[string]any) bool { return p == path || strings.HasPrefix(p, path+"/") })
	reply(w, metav1.Status{Status: "Success"})
}

func (a *stubAPI) watch(w http.ResponseWriter, r *http.Request) {
	ch := make(chan []byte, 1000)
	a.mu.Lock()
	a.watches[ch] = r.URL.Path
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.watches, ch)
		a.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case data := <-ch:
			_, _ = w.Write(append(data, '\n'))
			w.(http.Flusher).Flush()
		}
	}
}
