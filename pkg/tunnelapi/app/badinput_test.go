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
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/internal/memstore"
)

const groupPath = "/apis/tunnel.fairlead.dev/v1alpha1"

// ask sends a request and returns the status and the body. A watch is read up to its first event. The test ends if that takes
// half a minute.
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

// TestBadInput: each wrong request gets the status that Kubernetes has for it, in the body as well, and soon. Requests with a
// resource version that can be had are answered.
// It observes API-01, API-03, API-06, API-11, API-13, API-21, API-24, API-25, API-28, API-81, API-82, API-83, API-88 and EXT-17
// of docs/requirements.md.
// It also observes OLD-80 of docs/requirements.md.
func TestBadInput(t *testing.T) {
	t.Parallel()
	rig := tunneltest.NewRig(t, server.Config{ServerID: "one"})
	rig.StartAgent(agent.Config{AgentID: "a1"}, "")
	rig.StartAgent(agent.Config{AgentID: "a2"}, "")
	cfg := start(t, "unix://"+showState(t, rig))
	var all v1alpha1.TunnelAgentList
	tunneltest.Eventually(t, tunneltest.Patience, "two agents", func() bool {
		_, body := ask(t, cfg, http.MethodGet, "/tunnelagents", "")
		all = v1alpha1.TunnelAgentList{}
		return json.Unmarshal([]byte(body), &all) == nil && len(all.Items) == 2
	})
	current := all.ResourceVersion
	future := strconv.FormatUint(memstore.Epoch(time.Now().Add(time.Hour)), 10) // of a process that started later
	for _, c := range []struct {
		method, path, accept string
		code                 int
		text                 string
		without              string
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
		{path: "/tunnelagents?limit=1&continue=" + token(`{"v":"meta.k8s.io/v1","rv":1,"start":"a"}`), code: http.StatusGone, text: `"continue":"`},                 // to go on with
		{path: "/tunnelagents?limit=1&continue=" + token(`{"v":"meta.k8s.io/v1","rv":`+future+`,"start":"a1\u0000"}`), code: http.StatusGone, text: `"continue":"`}, // of a later replica
		{path: "/tunnelagents?limit=1&continue=" + token(`{"v":"meta.k8s.io/v1","rv":`+current+`,"start":"a1\u0000"}`), code: http.StatusOK, text: `"name":"a2"`, without: `"name":"a1"`},
		{path: "/tunnelagents?limit=1&resourceVersion=" + current + "&continue=" + token(`{"v":"meta.k8s.io/v1","rv":`+current+`,"start":"a1\u0000"}`), code: http.StatusBadRequest, text: "continue"},
		{path: "/tunnelagents", code: http.StatusOK, text: `"name":"a2"`, without: `"continue"`},
		{path: "/tunnelagents?limit=1", code: http.StatusOK, text: `"continue":"`, without: `"name":"a2"`},
		{path: "/tunnelagents?resourceVersion=0", code: http.StatusOK, text: `"name":"a2"`, without: `"continue"`},
		{path: "/tunnelagents?resourceVersion=0&limit=1", code: http.StatusOK, text: `"name":"a2"`, without: `"continue"`}, // as Kubernetes answers from its watch cache
		{path: "/tunnelagents?resourceVersion=" + current, code: http.StatusOK, text: `"name":"a2"`, without: `"continue"`},
		{path: "/tunnelagents?resourceVersion=" + current + "&limit=1", code: http.StatusOK, text: `"continue":"`, without: `"name":"a2"`},
		{path: "/tunnelagents/a1?resourceVersion=0", code: http.StatusOK, text: `"name":"a1"`},
		{path: "/tunnelagents/a1?resourceVersion=" + current, code: http.StatusOK, text: `"name":"a1"`},
		{path: "/tunnelagents/a1?resourceVersion=abc", code: http.StatusBadRequest},
		{path: "/tunnelagents?resourceVersion=abc", code: http.StatusBadRequest},
		{path: "/tunnelagents?resourceVersion=99999999999999999999", code: http.StatusBadRequest},
		{path: "/tunnelagents?resourceVersion=1&resourceVersionMatch=Exact", code: http.StatusGone, text: "Expired"},
		{path: "/tunnelagents?resourceVersion=" + future, code: http.StatusGatewayTimeout, text: "ResourceVersionTooLarge"},
		{path: "/tunnelagents?resourceVersion=" + future + "&limit=1", code: http.StatusGatewayTimeout, text: `"retryAfterSeconds":1`},
		{path: "/tunnelagents?resourceVersionMatch=Exact", code: http.StatusUnprocessableEntity},
		{path: "/tunnelagents?resourceVersion=1&resourceVersionMatch=Newest", code: http.StatusUnprocessableEntity},
		{path: "/tunnelagents?sendInitialEvents=true", code: http.StatusUnprocessableEntity},
		{path: "/tunnelagents?watch=1&sendInitialEvents=true", code: http.StatusUnprocessableEntity, text: "resourceVersionMatch"},
		{path: "/tunnelagents?watch=1&resourceVersion=1", code: http.StatusOK, text: `"code":410`}, // an event of the watch
		{path: "/tunnelagents?watch=1&resourceVersion=" + future, code: http.StatusGatewayTimeout, text: "ResourceVersionTooLarge", without: "retryAfterSeconds"},
		{path: "/tunnelagents/a1?resourceVersion=" + future, code: http.StatusGatewayTimeout, text: "ResourceVersionTooLarge"},
		{path: "/tunnelagents?watch=1&resourceVersion=abc", code: http.StatusBadRequest},
		{path: "/tunnelconnections/one-000000000001?resourceVersion=abc", code: http.StatusBadRequest},
		{path: "/tunnelagents/none", code: http.StatusNotFound, text: "none"},
		{path: "/tunnelagents/a1/connections", code: http.StatusNotFound},
		{path: "/tunnels", code: http.StatusNotFound},
		{path: "/tunnelconnections?watch=1", code: http.StatusMethodNotAllowed},
		{path: "/tunnelconnections?fieldSelector=spec.port%3D1", code: http.StatusBadRequest, text: "status.destination"},
		{path: "/tunnelconnections?limit=-1", code: http.StatusOK, text: `"items":[]`},
		{path: "/tunnelconnections?limit=1&continue=abc", code: http.StatusBadRequest},
		{path: "/tunnelconnections?limit=1&continue=" + token(`{"v":"meta.k8s.io/v1","rv":1,"start":"a"}`), code: http.StatusGone, text: "Expired", without: `"continue":"`},
		{path: "/tunnelconnections?limit=1&continue=" + token(`{"v":"meta.k8s.io/v1","rv":`+future+`,"start":"a"}`), code: http.StatusGone, text: "Expired", without: `"continue":"`},
		{path: "/tunnelconnections?resourceVersionMatch=Exact&resourceVersion=" + future, code: http.StatusGatewayTimeout, text: "ResourceVersionTooLarge"},
		{path: "/tunnelconnections?resourceVersion=1&resourceVersionMatch=Exact", code: http.StatusGone, text: "Expired"},
		{path: "/tunnelconnections?resourceVersion=" + future, code: http.StatusGatewayTimeout, text: "ResourceVersionTooLarge"},
		{path: "/tunnelconnections?resourceVersion=abc", code: http.StatusBadRequest},
		{method: http.MethodPost, path: "/tunnelagents", code: http.StatusMethodNotAllowed},
		{method: http.MethodPut, path: "/tunnelagents/a1", code: http.StatusMethodNotAllowed},
		{method: http.MethodPatch, path: "/tunnelservers/one", code: http.StatusMethodNotAllowed},
		{method: http.MethodDelete, path: "/tunnelconnections", code: http.StatusMethodNotAllowed},
		{path: "/tunnelagents", accept: "application/cbor", code: http.StatusNotAcceptable},
		{path: "/tunnelagents", accept: "text/html", code: http.StatusNotAcceptable},
		{path: "/tunnelagents", accept: "application/cbor, application/json", code: http.StatusOK, text: `"kind":"TunnelAgentList"`}, // the first type that the server knows
		{path: "/tunnelagents", accept: "application/json;as=Table;g=meta.k8s.io;v=v9, application/json", code: http.StatusOK, text: `"kind":"TunnelAgentList"`},
	} {
		method := c.method
		if method == "" {
			method = http.MethodGet
		}
		t.Run(method+" "+c.path+" "+c.accept, func(t *testing.T) {
			t.Parallel()
			code, body := ask(t, cfg, method, c.path, c.accept)
			if code != c.code || !strings.Contains(body, c.text) || c.without != "" && strings.Contains(body, c.without) {
				t.Errorf("%d %s, want %d and %q, without %q", code, body, c.code, c.text, c.without)
			}
			var status metav1.Status
			if code >= 400 && strings.HasPrefix(body, "{") && (json.Unmarshal([]byte(body), &status) != nil || int(status.Code) != code) {
				t.Errorf("the body of status %d is %s", code, body)
			}
		})
	}
}

// TestRetryAfter: a list at a resource version that is not reached yet has the header that says when to try again, and a
// watch has none.
// It observes API-88 of docs/requirements.md.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	cfg := start(t, "unix://"+showState(t, tunneltest.NewRig(t, server.Config{ServerID: "one"})))
	future := strconv.FormatUint(memstore.Epoch(time.Now().Add(time.Hour)), 10)
	for path, want := range map[string]string{"/tunnelagents?resourceVersion=": "1", "/tunnelconnections?resourceVersion=": "1", "/tunnelagents?watch=1&resourceVersion=": ""} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			body, header := fetch(t, cfg, path+future)
			if got := header.Get("Retry-After"); got != want || !strings.Contains(body, "ResourceVersionTooLarge") {
				t.Errorf("Retry-After is %q, want %q: %s", got, want, body)
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

// atOnce is less than the 3 s for which a request to a konnectivity-server that does not answer waits.
const atOnce = 2500 * time.Millisecond

// askSoon returns the fastest of some answers: a server that waits for another one delays all of them, and a busy machine some.
func askSoon(t *testing.T, cfg *rest.Config, path string) (code int, body string, took time.Duration) {
	t.Helper()
	for range 5 {
		begin := time.Now()
		code, body = ask(t, cfg, http.MethodGet, path, "")
		if took = time.Since(begin); took <= atOnce {
			break
		}
	}
	return code, body, took
}

// TestBadServers: next to a server that answers, one that is gone, one that is frozen and an older one delay no answer, are
// shown with the reason, and lists of connections say whose are missing.
func TestBadServers(t *testing.T) {
	t.Parallel()
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
		if code, body, took := askSoon(t, cfg, path); code != http.StatusOK || took > atOnce {
			t.Errorf("%s: %d %s after %v", path, code, body, took)
		}
	}
	_, warnings := askWarned(t, cfg, "/tunnelagents")
	for _, path := range []string{frozen, old, gone} {
		if !strings.Contains(warnings, path) {
			t.Errorf("no warning that agents of %s may be missing: %s", path, warnings)
		}
	}
	if _, warnings := askWarned(t, cfg, "/tunnelservers"); warnings != "" {
		t.Errorf("all servers are shown, with the warnings %s", warnings)
	}
	for path, want := range map[string]int{"/tunnelconnections": http.StatusOK, "/tunnelconnections/good-000000000001": http.StatusNotFound,
		"/tunnelconnections/other-000000000001": http.StatusServiceUnavailable} {
		if code, body, took := askSoon(t, cfg, path); code != want || took > atOnce {
			t.Errorf("%s: %d %s after %v, want %d", path, code, body, took, want)
		}
	}
}

// TestNoServers: a server whose konnectivity-servers cannot be found, or do not answer, is not ready. It does not know which
// agents and connections there are: lists and watches of them say why, and are not empty.
func TestNoServers(t *testing.T) {
	t.Parallel()
	o := NewOptions()
	o.ServerCAFile, o.ServerTokenFile = filepath.Join(t.TempDir(), "ca.crt"), filepath.Join(t.TempDir(), "token")
	lost := launch(t, o, "https://konnectivity-server.invalid:8093")
	tunneltest.Eventually(t, tunneltest.Patience, "the servers are looked for", func() bool {
		_, body := ask(t, lost, http.MethodGet, "/tunnelconnections", "")
		return strings.Contains(body, "konnectivity-server.invalid")
	})
	frozen := launch(t, NewOptions(), "unix://"+freeze(t))
	tunneltest.Eventually(t, tunneltest.Patience, "the frozen server is shown", func() bool {
		_, body := ask(t, frozen, http.MethodGet, "/tunnelservers", "")
		return strings.Contains(body, "NoAnswer")
	})
	for name, cfg := range map[string]*rest.Config{"not found": lost, "frozen": frozen} {
		if body, err := get(cfg, "/readyz", ""); err == nil || !strings.Contains(err.Error(), "[-]konnectivity-servers failed") {
			t.Errorf("%s: /readyz: %s, %v", name, body, err)
		}
		for _, path := range []string{"/tunnelconnections", "/tunnelconnections?limit=1", "/tunnelconnections/one-000000000001",
			"/tunnelagents", "/tunnelagents?resourceVersion=0", "/tunnelagents?watch=1", "/tunnelagents/a1"} {
			if code, body := ask(t, cfg, http.MethodGet, path, ""); code != http.StatusServiceUnavailable || !strings.Contains(body, "konnectivity-server") {
				t.Errorf("%s: %s: %d %s", name, path, code, body)
			}
		}
	}
}

// TestSomeServersNotFound: lists show what the servers that were found know, and warn that others may be missing. Watchers
// and clients of single objects get no warning.
func TestSomeServersNotFound(t *testing.T) {
	t.Parallel()
	rig := tunneltest.NewRig(t, server.Config{ServerID: "good"})
	rig.StartAgent(agent.Config{AgentID: "a1"}, "")
	good := "unix://" + showState(t, rig)
	o := NewOptions()
	o.ServerCAFile, o.ServerTokenFile = filepath.Join(t.TempDir(), "ca.crt"), filepath.Join(t.TempDir(), "token")
	some := launch(t, o, good, "https://konnectivity-server.invalid:8093")
	for name, cfg := range map[string]*rest.Config{"some": some, "all": start(t, good)} {
		for path, part := range map[string]string{"/tunnelagents": "tunnelagents of", "/tunnelservers": "tunnelservers of", "/tunnelagents/a1": ""} {
			var body, warnings string
			tunneltest.Eventually(t, tunneltest.Patience, name+" servers found: "+path, func() bool {
				body, warnings = askWarned(t, cfg, path)
				return strings.Contains(body, `"status"`) && (warnings != "") == (name == "some" && part != "")
			})
			if warnings != "" && (!strings.Contains(warnings, part) || !strings.Contains(warnings, "konnectivity-server.invalid")) {
				t.Errorf("%s servers found: %s: warnings %s", name, path, warnings)
			}
		}
	}
}

// askWarned returns the body and the warnings of an answer.
func askWarned(t *testing.T, cfg *rest.Config, path string) (body, warnings string) {
	t.Helper()
	body, header := fetch(t, cfg, path)
	return body, strings.Join(header.Values("Warning"), "\n")
}

// fetch returns the body and the headers of an answer.
func fetch(t *testing.T, cfg *rest.Config, path string) (body string, header http.Header) {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Get(strings.TrimSuffix(cfg.Host, "/") + groupPath + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(all), resp.Header
}
