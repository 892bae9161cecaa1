// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// forwardingAPI is an API server with server Pods of those names. It forwards ports over SPDY to loopback, as a node does for
// Pods of its own network, and reaches no port by proxy.
func forwardingAPI(t *testing.T, forwards *atomic.Int32, pods ...string) *httptest.Server {
	t.Helper()
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	for _, name := range pods {
		list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: spaceName}})
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/portforward") && r.Method == http.MethodPost:
			forwards.Add(1)
			forward(w, r)
		case strings.HasSuffix(r.URL.Path, "/portforward"):
			http.Error(w, "no WebSocket here", http.StatusBadRequest)
		case strings.HasSuffix(r.URL.Path, "/pods"):
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(list)
		default:
			http.Error(w, "connection refused", http.StatusBadGateway)
		}
	}))
	t.Cleanup(api.Close)
	return api
}

func forward(w http.ResponseWriter, r *http.Request) {
	const protocol = "portforward.k8s.io"
	if _, err := httpstream.Handshake(r, w, []string{protocol}); err != nil {
		return
	}
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		go func() {
			<-replied
			defer func() { _ = s.Close() }()
			if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
				return
			}
			to, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", s.Headers().Get(corev1.PortHeader)))
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(to, s)
				_ = to.Close()
			}()
			_, _ = io.Copy(s, to)
		}()
		return nil
	})
	if conn != nil {
		<-conn.CloseChan()
	}
}

// TestServerMetricsOnLoopback: the metrics of servers that serve them on loopback, as the default bundle's do, are read from
// each of them through a forwarded port.
func TestServerMetricsOnLoopback(t *testing.T) {
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			_, _ = w.Write([]byte("dials 1\n"))
		}
	}))
	t.Cleanup(metrics.Close)
	at, err := url.Parse(metrics.URL)
	if err != nil {
		t.Fatal(err)
	}
	var forwards atomic.Int32
	config := &rest.Config{Host: forwardingAPI(t, &forwards, "server-1", "server-2").URL}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	n := names()
	n.ServerPort = at.Port()
	text, err := serverMetrics(t.Context(), config, client, n)
	if err != nil || strings.Count(string(text), "dials 1") != 2 || forwards.Load() != 2 {
		t.Errorf("%q after %d forwards, %v; want the metrics of two servers", text, forwards.Load(), err)
	}
}
