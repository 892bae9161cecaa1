// SPDX-License-Identifier: Apache-2.0

package sysdump_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/sysdump"
)

// logged is an API server with ready agents and one server of the tunnel, an event, and logs that a test writes.
func logged(t *testing.T, agents int, log func(w http.ResponseWriter, r *http.Request)) *rest.Config {
	t.Helper()
	var pods corev1.PodList
	add := func(name, program string, args ...string) {
		pods.Items = append(pods.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name},
			Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example/" + program + ":v1", Command: []string{"/" + program}, Args: args}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Ready: true}}}})
	}
	for i := range agents {
		add(fmt.Sprintf("konnectivity-agent-%02d", i), "proxy-agent")
	}
	add("konnectivity-server-cp", "proxy-server")
	add("fairlead-gateway-1", "fairlead", "socks5")
	list, err := json.Marshal(pods)
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/log"):
			log(w, r)
		case r.URL.Path == "/api/v1/namespaces/kube-system/events" && r.URL.Query().Get("fieldSelector") == "":
			_, _ = w.Write([]byte(`{"items":[{"metadata":{"name":"e","namespace":"kube-system"},"reason":"BackOff","message":"the tunnel is slow"}]}`))
		case r.URL.Path == "/api/v1/namespaces/kube-system/pods":
			_, _ = w.Write(list)
		default:
			_, _ = w.Write([]byte(`{"items":[]}`))
		}
	}))
	t.Cleanup(api.Close)
	return &rest.Config{Host: api.URL}
}

const serversLog = "logs/kube-system_konnectivity-server-cp.log"

// TestLogsHang proves that an archive has the events and the server's log although the logs of all agents hang for longer than there is time.
func TestLogsHang(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	defer close(end)
	config := logged(t, 40, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "konnectivity-agent-") {
			select {
			case <-end:
			case <-r.Context().Done():
			}
			return
		}
		_, _ = w.Write([]byte("the server's line\n")) // and the gateway's
	})
	limited, cancel := context.WithTimeout(t.Context(), 25*time.Second)
	defer cancel()
	var out bytes.Buffer
	manifest, err := sysdump.Write(limited, observe.Target{Config: config, Limit: 5 * time.Second}, &out, sysdump.Options{MaxSize: 10 << 20, LogSize: 1 << 20, Agents: 40})
	if err != nil {
		t.Fatal(err)
	}
	files, missing := unpack(t, &out), fmt.Sprint(manifest.Missing)
	if !strings.Contains(files["objects/events.json"], "the tunnel is slow") || files[serversLog] != "the server's line\n" {
		t.Errorf("events %s, the server's log %q, missing %s", files["objects/events.json"], files[serversLog], missing)
	}
	if gateway := files["logs/kube-system_fairlead-gateway-1.log"]; gateway == "" {
		t.Errorf("the gateway has no log, missing %s", missing)
	}
	for _, agent := range []string{"00", "39"} {
		if !strings.Contains(missing, "logs/kube-system_konnectivity-agent-"+agent+".log") {
			t.Errorf("agent %s is not among what is missing: %s", agent, missing)
		}
	}
}

// TestLogsFill proves that events and the server's log are in an archive that the logs of agents fill.
func TestLogsFill(t *testing.T) {
	t.Parallel()
	config := logged(t, 20, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("a line of a log\n"), 4<<10))
	})
	var out bytes.Buffer
	manifest, err := sysdump.Write(t.Context(), observe.Target{Config: config, Limit: 5 * time.Second}, &out, sysdump.Options{MaxSize: 300 << 10, LogSize: 64 << 10, Agents: 20})
	if err != nil {
		t.Fatal(err)
	}
	files, missing := unpack(t, &out), fmt.Sprint(manifest.Missing)
	if !strings.Contains(files["objects/events.json"], "the tunnel is slow") || files[serversLog] == "" || !strings.Contains(missing, "konnectivity-agent-19.log") {
		t.Errorf("the server's log has %d bytes, events %q, missing %s", len(files[serversLog]), files["objects/events.json"], missing)
	}
}

// TestEndOfLog proves that an archive has the end of a log that is much longer than the limit of its size, and that a limit beyond any log is one.
func TestEndOfLog(t *testing.T) {
	t.Parallel()
	const lines = 1500
	config := logged(t, 0, func(w http.ResponseWriter, _ *http.Request) {
		for i := range lines {
			_, _ = fmt.Fprintf(w, "line %4d %s\n", i, strings.Repeat("x", 140))
		}
	})
	for _, size := range []int64{8 << 10, 1 << 20, 1 << 60, math.MaxInt64} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			manifest, err := sysdump.Write(t.Context(), observe.Target{Config: config, Limit: 5 * time.Second}, &out, sysdump.Options{MaxSize: 10 << 20, LogSize: size})
			if err != nil {
				t.Fatal(err)
			}
			text := unpack(t, &out)[serversLog]
			whole := strings.HasPrefix(text, "line    0 ")
			if !strings.HasPrefix(text, "line ") || !strings.Contains(text, fmt.Sprintf("line %d ", lines-1)) || whole != (size > 8<<10) || int64(len(text)) > size {
				t.Errorf("%d bytes from %.20q to %.20q", len(text), text, text[max(0, len(text)-152):])
			}
			for _, f := range manifest.Files {
				if f.Name == serversLog && f.Cut == whole {
					t.Errorf("cut is %v", f.Cut)
				}
			}
		})
	}
}
