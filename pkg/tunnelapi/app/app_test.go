// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/internal/registry"
)

// showState serves the state of a real server on a socket, and connections through its agents.
func showState(t *testing.T, r *tunneltest.Rig) string {
	t.Helper()
	path := filepath.Join(tunneltest.ShortDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: state.Connecting(state.Handler(r.Server), r.Server), ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return path
}

// start runs the API server and waits until it is ready.
func start(t *testing.T, servers ...string) *rest.Config {
	t.Helper()
	cfg := launch(t, NewOptions(), servers...)
	tunneltest.Eventually(t, time.Minute, "the API server is ready", func() bool {
		_, err := get(cfg, "/readyz", "")
		return err == nil
	})
	return cfg
}

// launch runs the API server without a kube-apiserver: only its own loopback client is authorized.
func launch(t *testing.T, o *Options, servers ...string) *rest.Config {
	t.Helper()
	o.ShutdownDelay = 0
	ctx, cancel := context.WithCancel(context.Background())
	cfg, done := launchUntil(ctx, t, o, servers...)
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return cfg
}

// launchUntil is launch with a server that gets SIGTERM when ctx ends. The channel has the error of its end.
func launchUntil(ctx context.Context, t *testing.T, o *Options, servers ...string) (*rest.Config, chan error) {
	t.Helper()
	o.Servers, o.CountsInterval = servers, 100*time.Millisecond
	o.PollInterval = 100 * time.Millisecond
	o.Authentication.RemoteKubeConfigFileOptional, o.Authorization.RemoteKubeConfigFileOptional = true, true
	o.SecureServing.BindAddress, o.SecureServing.ServerCert.CertDirectory = net.IPv4(127, 0, 0, 1), t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.SecureServing.Listener, o.SecureServing.BindPort = l, l.Addr().(*net.TCPAddr).Port
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	cfg, err := o.config()
	if err != nil {
		t.Fatal(err)
	}
	s, err := cfg.Complete(nil).New("test", genericapiserver.NewEmptyDelegate())
	if err != nil {
		t.Fatal(err)
	}
	if err := o.install(s); err != nil { //nolint:contextcheck // its hooks have contexts of their own
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.PrepareRun().RunWithContext(ctx) }()
	return s.LoopbackClientConfig, done
}

// get asks for a path with an Accept header.
func get(cfg *rest.Config, path, accept string) ([]byte, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(http.MethodGet, strings.TrimSuffix(cfg.Host, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return body, err
}

// podTokens accepts tokens that say themselves which node and Pod they are bound to.
type podTokens struct{}

func (p podTokens) Check(ctx context.Context, peer, token string) (string, error) {
	node, _, err := p.CheckPod(ctx, peer, token)
	return node, err
}

func (podTokens) CheckPod(_ context.Context, _, token string) (node, pod string, err error) {
	node, pod, _ = strings.Cut(token, "/")
	return node, pod, nil
}

func connected(o *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == v1alpha1.ConditionConnected {
			return fmt.Sprint(m["status"])
		}
	}
	return ""
}

// TestAPI: with two real konnectivity-servers and a real agent at both, a client reads, lists, watches and prints what
// the servers know. What goes away is shown as that.
// It observes API-03, API-05, API-10, API-13, API-20, API-22, API-25, API-27, API-28a, API-29, API-87 and EXT-17 of
// docs/requirements.md.
// It also observes OLD-70, OLD-80 and OLD-96 of docs/requirements.md.
func TestAPI(t *testing.T) {
	t.Parallel()
	one := tunneltest.NewRig(t, server.Config{ServerID: "one", Tokens: podTokens{}})
	two := tunneltest.NewRig(t, server.Config{ServerID: "Two_2", Tokens: podTokens{}})
	for _, r := range []*tunneltest.Rig{one, two} {
		r.StartAgent(agent.Config{AgentID: "a1", Identifiers: "host=x", Token: func() (string, error) { return "node-1/pod-1", nil }}, "")
	}
	leaving := one.StartAgent(agent.Config{AgentID: "Agent/Two"}, "")
	cfg := start(t, "unix://"+showState(t, one), "unix://"+showState(t, two), "unix://"+filepath.Join(t.TempDir(), "none"))
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	agents := client.Resource(v1alpha1.SchemeGroupVersion.WithResource("tunnelagents"))
	w := watching(t, agents)
	tunneltest.Eventually(t, tunneltest.Patience, "two agents", func() bool {
		list, err := agents.List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 2
	})
	t.Run("merged", func(t *testing.T) { merged(t, agents) })
	t.Run("servers", func(t *testing.T) {
		checkServers(t, client.Resource(v1alpha1.SchemeGroupVersion.WithResource("tunnelservers")))
	})
	t.Run("selectors", func(t *testing.T) { selectors(t, agents) })
	t.Run("connections", func(t *testing.T) { connections(t, one, client) })
	t.Run("formats", func(t *testing.T) { formats(t, cfg) })
	t.Run("protobuf", func(t *testing.T) { protobuf(t, cfg) })
	t.Run("read only", func(t *testing.T) {
		err := agents.Delete(t.Context(), "a1", metav1.DeleteOptions{})
		if !apierrors.IsMethodNotSupported(err) {
			t.Errorf("delete: %v", err)
		}
	})
	list, err := agents.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	leaving.Stop()
	untilGone(t, w, watch.Added, watch.Modified)
	limit := int64(60)
	if w, err = agents.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), TimeoutSeconds: &limit}); err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	untilGone(t, w, watch.Modified) // what has changed since the list
}

// untilGone reads a watch, which may have events of some types, up to the event that the second agent has gone.
func untilGone(t *testing.T, w watch.Interface, types ...watch.EventType) {
	t.Helper()
	for e := range w.ResultChan() {
		if e.Type == watch.Bookmark { // watching asks for them
			continue
		}
		o, ok := e.Object.(*unstructured.Unstructured)
		if !ok || !slices.Contains(types, e.Type) {
			t.Fatalf("%v: %v", e.Type, e.Object)
		}
		if strings.HasPrefix(o.GetName(), "agent-two-") && connected(o) == "False" {
			return
		}
	}
	t.Fatal("the watch ended before the agent had gone")
}

// watching begins a watch with a streaming list and returns once that has ended.
func watching(t *testing.T, agents dynamic.ResourceInterface) watch.Interface {
	t.Helper()
	yes, limit := true, int64(60)
	w, err := agents.Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, TimeoutSeconds: &limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	for e := range w.ResultChan() {
		o, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			t.Fatalf("%v: %v", e.Type, e.Object)
		}
		if e.Type == watch.Bookmark && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			return w
		}
	}
	t.Fatal("the initial events do not end")
	return nil
}

func merged(t *testing.T, agents dynamic.ResourceInterface) {
	o, err := agents.Get(t.Context(), "a1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	servers, _, _ := unstructured.NestedSlice(o.Object, "status", "servers")
	pod, _, _ := unstructured.NestedString(o.Object, "status", "podName")
	if len(servers) != 2 || pod != "pod-1" || connected(o) != "True" || o.GetUID() == "" || o.GetResourceVersion() == "" {
		t.Errorf("%v", o.Object)
	}
	if _, err := agents.Get(t.Context(), "other", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an agent that is not there: %v", err)
	}
}

// checkServers: a server that does not answer is shown, with the reason.
func checkServers(t *testing.T, servers dynamic.ResourceInterface) {
	list, err := servers.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 3 {
		t.Fatalf("%v, %v", list, err)
	}
	reasons := map[string]string{}
	for _, o := range list.Items {
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		first, _ := conditions[0].(map[string]any)
		reasons[o.GetName()] = fmt.Sprint(first["type"], "=", first["status"], ": ", first["message"])
	}
	for name, text := range reasons {
		want := "Reachable=True"
		if strings.HasPrefix(name, "unknown-") {
			want = "no such file"
		}
		if !strings.Contains(text, want) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func selectors(t *testing.T, agents dynamic.ResourceInterface) {
	for selector, want := range map[string]int{"metadata.name=a1": 1, "status.agentID=Agent/Two": 1, "status.draining=false": 2, "status.nodeName=x": 0, "status.nodeName=node-1": 1} {
		list, err := agents.List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		if err != nil || len(list.Items) != want {
			t.Errorf("%s: %v, %v", selector, list, err)
		}
	}
	for name, bad := range map[string]metav1.ListOptions{
		"unknown field": {FieldSelector: "status.color=red"}, "bad selector": {LabelSelector: "a in"},
		"bad version": {ResourceVersion: "abc"}, "bad token": {Continue: "abc"}, "match without version": {ResourceVersionMatch: metav1.ResourceVersionMatchExact},
	} {
		if _, err := agents.List(t.Context(), bad); !apierrors.IsBadRequest(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	exact := metav1.ListOptions{ResourceVersion: "1", ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	if _, err := agents.List(t.Context(), exact); !apierrors.IsResourceExpired(err) {
		t.Errorf("a version of another process: %v", err)
	}
}

// connections: all pages of a list are one moment.
func connections(t *testing.T, r *tunneltest.Rig, client dynamic.Interface) {
	target := tunneltest.Target(t, tunneltest.Echo)
	for range 5 {
		c, err := tunneltest.Connect(r.Connect)(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	resource := client.Resource(v1alpha1.SchemeGroupVersion.WithResource("tunnelconnections"))
	opts := metav1.ListOptions{Limit: 2, FieldSelector: "status.destination=" + target}
	names := map[string]bool{}
	for range 3 {
		list, err := resource.List(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			names[o.GetName()] = true
		}
		opts.Continue = list.GetContinue()
	}
	if len(names) != 5 || opts.Continue != "" {
		t.Errorf("connections: %v, and then %q", names, opts.Continue)
	}
	for name := range names {
		if o, err := resource.Get(t.Context(), name, metav1.GetOptions{}); err != nil || o.GetName() != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := resource.Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("watch: %v", err)
	}
}

// formats: kubectl gets tables, clients that ask for protobuf get it, and discovery and OpenAPI describe the API.
func formats(t *testing.T, cfg *rest.Config) {
	const path = "/apis/tunnel.fairlead.dev/v1alpha1"
	body, err := get(cfg, path+"/tunnelagents", "application/json;as=Table;v=v1;g=meta.k8s.io")
	var table metav1.Table
	if err == nil {
		err = json.Unmarshal(body, &table)
	}
	if err != nil || len(table.Rows) != 2 || table.ColumnDefinitions[1].Name != "Node" || len(table.Rows[0].Cells) != len(table.ColumnDefinitions) {
		t.Errorf("table: %v, %s", err, body)
	}
	last := len(table.ColumnDefinitions) - 1
	if c := table.ColumnDefinitions[last]; c.Name != "Pod" || c.Priority != 1 || !strings.Contains(string(body), `"pod-1"`) {
		t.Errorf("the last column is %+v of %s", c, body)
	}
	for name, c := range map[string]struct{ path, accept, want string }{
		"metadata":  {path + "/tunnelagents", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", `"kind":"PartialObjectMetadataList"`},
		"discovery": {path, "", `"shortNames":["ta"]`},
		"v2":        {"/openapi/v2", "", "rttMicroseconds"},
		"v3":        {"/openapi/v3/apis/tunnel.fairlead.dev/v1alpha1", "", "shortest round trip"},
	} {
		if body, err := get(cfg, c.path, c.accept); err != nil || !strings.Contains(string(body), c.want) {
			t.Errorf("%s: %v, %.300s", name, err, body)
		}
	}
}

// protobuf: the objects, the events of a watch and a refusal are the same as in JSON.
func protobuf(t *testing.T, cfg *rest.Config) {
	const path, mediaType = "/apis/tunnel.fairlead.dev/v1alpha1", "application/vnd.kubernetes.protobuf"
	decode := func(accept string) runtime.Object {
		body, err := get(cfg, path+"/tunnelagents/a1", accept)
		if err != nil {
			t.Fatal(err)
		}
		if isProtobuf := bytes.HasPrefix(body, []byte("k8s\x00")); isProtobuf != strings.HasPrefix(accept, mediaType) {
			t.Fatalf("Accept %s: %q", accept, body)
		}
		o, err := runtime.Decode(registry.Codecs.UniversalDeserializer(), body)
		if err != nil {
			t.Fatal(err)
		}
		a, ok := o.(*v1alpha1.TunnelAgent)
		if !ok || len(a.Status.Servers) != 2 {
			t.Fatalf("Accept %s: %+v", accept, o)
		}
		for i := range a.Status.Servers { // they may change between two requests
			s := &a.Status.Servers[i]
			*s = v1alpha1.AgentServer{ServerID: s.ServerID, Links: s.Links, Since: s.Since, Peers: s.Peers}
		}
		a.ResourceVersion, a.TypeMeta = "", metav1.TypeMeta{}
		return a
	}
	asJSON := decode("application/json")
	for _, accept := range []string{mediaType, mediaType + ",application/json"} {
		if diff := cmp.Diff(asJSON, decode(accept)); diff != "" {
			t.Errorf("Accept %s: (-json +protobuf):\n%s", accept, diff)
		}
	}
	body, err := get(cfg, path+"/tunnelagents/a1", mediaType)
	var envelope runtime.Unknown
	if err == nil {
		err = envelope.Unmarshal(bytes.TrimPrefix(body, []byte("k8s\x00")))
	}
	var inner v1alpha1.TunnelAgent
	if err != nil || envelope.ContentEncoding != "" || envelope.ContentType != "" || envelope.Kind != "TunnelAgent" || inner.Unmarshal(envelope.Raw) != nil || inner.Name != "a1" {
		t.Errorf("the envelope of protobuf: %v, %+v", err, envelope) // without both fields, the rest is protobuf that is encoded no further
	}
	config := rest.CopyConfig(cfg)
	config.GroupVersion, config.APIPath = &v1alpha1.SchemeGroupVersion, "/apis"
	config.NegotiatedSerializer, config.ContentType = registry.Codecs.WithoutConversion(), mediaType
	client, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.Get().Resource("tunnelagents").Param("watch", "1").Param("timeoutSeconds", "60").Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if a, ok := (<-w.ResultChan()).Object.(*v1alpha1.TunnelAgent); !ok || a.Status.AgentID == "" {
		t.Errorf("watch: %+v", a)
	}
	if err := client.Get().Resource("tunnelagents").Name("other").Do(t.Context()).Error(); !apierrors.IsNotFound(err) {
		t.Errorf("an agent that is not there: %v", err)
	}
}

// TestValidate: wrong flags are refused with what to do.
func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"no server":      {func(o *Options) { o.Servers = nil }, "must name at least one server"},
		"plain http":     {func(o *Options) { o.Servers = []string{"http://a:1"} }, "neither unix:///PATH nor https://HOST:PORT"},
		"no token":       {func(o *Options) { o.Servers = []string{"https://a:1"} }, "needs --konnectivity-server-token-file"},
		"stale too soon": {func(o *Options) { o.StaleAfter = o.PollInterval }, "at least twice --poll-interval"},
		"no requests":    {func(o *Options) { o.MaxRequestsInFlight = 0 }, "--max-requests-inflight must be at least 1"},
		"delay":          {func(o *Options) { o.ShutdownDelay = -1 }, "--shutdown-delay-duration must not be negative"},
		"no watches":     {func(o *Options) { o.MaxWatches = 0 }, "--max-watches must be at least 1"},
	} {
		o := NewOptions()
		o.Servers = []string{"unix:///a"}
		c.change(o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
