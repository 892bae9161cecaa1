// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

const groupPath = "/apis/tunnel.fairlead.dev/v1alpha1"

// ask sends a request and returns the status and the body. A watch is read up to its first event.
func ask(t *testing.T, cfg *rest.Config, method, path, accept string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(cfg.Host, "/")+groupPath+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusOK && strings.Contains(path, "watch=1") {
		var event metav1.WatchEvent
		if err := json.NewDecoder(resp.Body).Decode(&event); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, event.Type + string(event.Object.Raw)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func token(content string) string {
	return url.QueryEscape(base64.RawURLEncoding.EncodeToString([]byte(content)))
}

// TestBadInput: each wrong request gets the status that Kubernetes has for it, in the body as well, and soon.
func TestBadInput(t *testing.T) {
	rig := tunneltest.NewRig(t, server.Config{ServerID: "one"})
	rig.StartAgent(agent.Config{AgentID: "a1"}, "")
	cfg := start(t, "unix://"+showState(t, rig))
	tunneltest.Eventually(t, tunneltest.Patience, "an agent", func() bool {
		code, _ := ask(t, cfg, http.MethodGet, "/tunnelagents/a1", "")
		return code == http.StatusOK
	})
	future := strconv.FormatUint(uint64(time.Now().Add(time.Hour).Unix())<<32, 10) // of a process that started later
	for _, c := range []struct {
		method, path, accept string
		code                 int
		text                 string
	}{
		{path: "/tunnelagents?fieldSelector=status.color%3Dred", code: http.StatusBadRequest, text: "status.draining"},
		{path: "/tunnelagents?labelSelector=a+in", code: http.StatusBadRequest},
		{path: "/tunnelagents?limit=many", code: http.StatusBadRequest},
		{path: "/tunnelagents?limit=-1", code: http.StatusOK, text: `"name":"a1"`},
		{path: "/tunnelagents?limit=9223372036854775807", code: http.StatusOK, text: `"name":"a1"`},
		{path: "/tunnelagents?limit=9223372036854775808", code: http.StatusBadRequest},
		{path: "/tunnelagents?limit=1&continue=abc", code: http.StatusBadRequest, text: "continue"},
		{path: "/tunnelagents?limit=1&continue=" + token(`{"v":"meta.k8s.io/v1","rv":-1,"start":"../tunnelservers/one"}`), code: http.StatusBadRequest, text: "continue"},
		{path: "/tunnelagents?limit=1&continue=" + token(`{"v":"meta.k8s.io/v1","rv":1,"start":"a"}`), code: http.StatusGone, text: "Expired"},
		{path: "/tunnelagents?resourceVersion=abc", code: http.StatusBadRequest},
		{path: "/tunnelagents?resourceVersion=99999999999999999999", code: http.StatusBadRequest},
		{path: "/tunnelagents?resourceVersion=1&resourceVersionMatch=Exact", code: http.StatusGone, text: "Expired"},
		{path: "/tunnelagents?resourceVersion=" + future, code: http.StatusGatewayTimeout, text: "ResourceVersionTooLarge"},
		{path: "/tunnelagents?resourceVersionMatch=Exact", code: http.StatusUnprocessableEntity},
		{path: "/tunnelagents?resourceVersion=1&resourceVersionMatch=Newest", code: http.StatusUnprocessableEntity},
		{path: "/tunnelagents?sendInitialEvents=true", code: http.StatusUnprocessableEntity},
		{path: "/tunnelagents?watch=1&sendInitialEvents=true", code: http.StatusUnprocessableEntity, text: "resourceVersionMatch"},
		{path: "/tunnelagents?watch=1&resourceVersion=1", code: http.StatusOK, text: `"code":410`}, // an event of the watch
		{path: "/tunnelagents?watch=1&resourceVersion=" + future, code: http.StatusGatewayTimeout, text: "ResourceVersionTooLarge"},
		{path: "/tunnelagents/a1?resourceVersion=" + future, code: http.StatusGatewayTimeout, text: "ResourceVersionTooLarge"},
		{path: "/tunnelagents/none", code: http.StatusNotFound, text: "none"},
		{path: "/tunnelagents/a1/connections", code: http.StatusNotFound},
		{path: "/tunnels", code: http.StatusNotFound},
		{path: "/tunnelconnections?watch=1", code: http.StatusMethodNotAllowed},
		{path: "/tunnelconnections?fieldSelector=spec.port%3D1", code: http.StatusBadRequest, text: "status.destination"},
		{path: "/tunnelconnections?limit=-1", code: http.StatusOK, text: `"items":[]`},
		{path: "/tunnelconnections?limit=1&continue=abc", code: http.StatusBadRequest},
		{path: "/tunnelconnections?limit=1&continue=" + token(`{"v":"meta.k8s.io/v1","rv":1,"start":"a"}`), code: http.StatusGone, text: "Expired"},
		{path: "/tunnelconnections?resourceVersion=1&resourceVersionMatch=Exact", code: http.StatusGone, text: "Expired"},
		{path: "/tunnelconnections?resourceVersion=" + future, code: http.StatusGatewayTimeout, text: "ResourceVersionTooLarge"},
		{path: "/tunnelconnections?resourceVersion=abc", code: http.StatusBadRequest},
		{method: http.MethodPost, path: "/tunnelagents", code: http.StatusMethodNotAllowed},
		{method: http.MethodPut, path: "/tunnelagents/a1", code: http.StatusMethodNotAllowed},
		{method: http.MethodPatch, path: "/tunnelservers/one", code: http.StatusMethodNotAllowed},
		{method: http.MethodDelete, path: "/tunnelconnections", code: http.StatusMethodNotAllowed},
		{path: "/tunnelagents", accept: "application/cbor", code: http.StatusNotAcceptable},
		{path: "/tunnelagents", accept: "text/html", code: http.StatusNotAcceptable},
	} {
		method := c.method
		if method == "" {
			method = http.MethodGet
		}
		t.Run(method+" "+c.path+" "+c.accept, func(t *testing.T) {
			begin := time.Now()
			code, body := ask(t, cfg, method, c.path, c.accept)
			if code != c.code || !strings.Contains(body, c.text) {
				t.Errorf("%d %s, want %d and %q", code, body, c.code, c.text)
			}
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			var status metav1.Status
			if code >= 400 && strings.HasPrefix(body, "{") && (json.Unmarshal([]byte(body), &status) != nil || int(status.Code) != code) {
				t.Errorf("the body of status %d is %s", code, body)
			}
		})
	}
}

// freeze is a konnectivity-server that takes connections and never answers.
func freeze(t *testing.T) string {
	t.Helper()
	path := filepath.Join(tunneltest.ShortDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // what it has not taken waits in the kernel
	return path
}

// older is a program that knows nothing of the protocol.
func older(t *testing.T) string {
	t.Helper()
	path := filepath.Join(tunneltest.ShortDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return path
}

// TestBadServers: beside a server that answers, one that is gone, one that is frozen and an older one delay no answer, are
// shown with the reason, and lists of connections say whose are missing.
func TestBadServers(t *testing.T) {
	rig := tunneltest.NewRig(t, server.Config{ServerID: "good"})
	rig.StartAgent(agent.Config{AgentID: "a1"}, "")
	frozen, old, gone := freeze(t), older(t), filepath.Join(t.TempDir(), "none")
	cfg := start(t, "unix://"+showState(t, rig), "unix://"+frozen, "unix://"+old, "unix://"+gone)
	reason := func(path string) string {
		_, body := ask(t, cfg, http.MethodGet, "/tunnelservers", "")
		var list v1alpha1.TunnelServerList
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatal(err)
		}
		for _, s := range list.Items {
			if strings.HasSuffix(s.Status.Address, path) {
				return fmt.Sprintf("%s %s", s.Status.Conditions[0].Status, s.Status.Conditions[0].Reason)
			}
		}
		return "not shown"
	}
	for path, want := range map[string]string{frozen: "False NoAnswer", old: "False NotSupported", gone: "False NoAnswer"} {
		tunneltest.Eventually(t, tunneltest.Patience, want+" of "+path, func() bool { return reason(path) == want })
	}
	for _, path := range []string{"/tunnelagents", "/tunnelagents/a1", "/tunnelservers/good"} {
		begin := time.Now()
		if code, body := ask(t, cfg, http.MethodGet, path, ""); code != http.StatusOK || time.Since(begin) > time.Second {
			t.Errorf("%s: %d %s after %v", path, code, body, time.Since(begin))
		}
	}
	for path, want := range map[string]int{"/tunnelconnections": http.StatusOK, "/tunnelconnections/good-000000000001": http.StatusServiceUnavailable} {
		begin := time.Now()
		if code, body := ask(t, cfg, http.MethodGet, path, ""); code != want || time.Since(begin) > 10*time.Second {
			t.Errorf("%s: %d %s after %v, want %d", path, code, body, time.Since(begin), want)
		}
	}
}
