// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/crd/internal/webhooktest"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// recorder is the documents' webhook, with a list of what it was asked.
type recorder struct {
	mu    sync.Mutex
	calls []call
}

type call struct {
	method, path, contentType, apiVersion, uid, desired string
	versions                                            []string // of the objects
	certificates                                        int
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	request.Body = io.NopCloser(bytes.NewReader(body))
	var review struct {
		APIVersion string
		Request    struct {
			UID               string
			DesiredAPIVersion string
			Objects           []metav1.TypeMeta
		}
	}
	_ = json.Unmarshal(body, &review)
	c := call{method: request.Method, path: request.URL.Path, contentType: request.Header.Get("Content-Type"), apiVersion: review.APIVersion,
		uid: review.Request.UID, desired: review.Request.DesiredAPIVersion, certificates: len(request.TLS.PeerCertificates)}
	for _, o := range review.Request.Objects {
		c.versions = append(c.versions, o.APIVersion)
	}
	r.mu.Lock()
	r.calls = append(r.calls, c)
	r.mu.Unlock()
	webhooktest.Handler(nil).ServeHTTP(w, request)
}

// take returns the calls so far, and forgets them.
func (r *recorder) take() []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.calls = nil }()
	return r.calls
}

// converted is a definition with the documents' webhook, which stores v1beta1.
type converted struct {
	*env
	*crd.Definition
	hook         *recorder
	seen         []call
	old, current string // versions
}

// calls counts the calls since the last look that ask for a version. The API server also
// converts for its watch cache of each version, so only this says whom a call was for.
func (c *converted) calls(version string) (n int) {
	calls := c.hook.take()
	c.seen = append(c.seen, calls...)
	for _, call := range calls {
		if call.desired == version {
			n++
		}
	}
	return n
}

// hosts are the host and port of each object, as v1 has them.
func (c *converted) hosts(t *testing.T) map[string][2]string {
	t.Helper()
	type list struct {
		Items []struct {
			Metadata   struct{ Name string }
			Host, Port string
		}
	}
	out := map[string][2]string{}
	for _, item := range get[list](t, c.env, collection(c.Definition, "v1"), jsonType).Items {
		out[item.Metadata.Name] = [2]string{item.Host, item.Port}
	}
	return out
}

// testWebhook counts the calls of a conversion webhook by what a client does, and checks what
// the API server sends.
// It observes VER-41, VER-64, VER-90, VER-91, VER-92, VER-96 and VER-97 of docs/requirements.md.
// It also observes OLD-40 and OLD-59 of docs/requirements.md.
func (e *env) testWebhook(t *testing.T) {
	hook := &recorder{}
	server := httptest.NewUnstartedServer(hook)
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	d := e.create(t, &testCase{Index: 510, File: "crontabs-versions.yaml", Set: map[string]any{"spec.conversion": map[string]any{
		"strategy": "Webhook", "webhook": map[string]any{"conversionReviewVersions": []any{"v7", "v1beta1", "v1"}, "clientConfig": map[string]any{"url": server.URL, "caBundle": ca}}}}})
	c := &converted{env: e, Definition: d, hook: hook, old: d.Spec.Group + "/v1beta1", current: d.Spec.Group + "/v1"}
	c.reads(t)
	c.writes(t)
	c.mixed(t)
	checkCalls(t, c.seen)
	metrics := e.raw(t, http.MethodGet, "/metrics", "", "*/*", "")
	has(t, "the metrics", metrics.body, "apiserver_conversion_webhook_request_total{", "apiserver_conversion_webhook_duration_seconds_count{", `apiserver_crd_conversion_webhook_duration_seconds_count{crd_name="`+d.Name+`"`)
	e.testLimit(t)
}

// lateReply is the answer to a read for which the API server calls a webhook that does not answer.
type lateReply struct {
	reply
	err  error
	took time.Duration
	// timeouts are the time limits that the calls of the webhook name.
	timeouts []string
}

// silentWebhook reads an object in a version to which it must be converted by a webhook that does not answer.
func (e *env) silentWebhook(t *testing.T) <-chan lateReply {
	t.Helper()
	var mu sync.Mutex
	var timeouts []string
	stop := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the context ends with the connection only after that
		mu.Lock()
		timeouts = append(timeouts, r.URL.Query().Get("timeout"))
		mu.Unlock()
		select {
		case <-r.Context().Done():
		case <-stop:
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(stop) })
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	d := e.create(t, &testCase{Index: 515, File: "crontabs-versions.yaml", Set: map[string]any{"spec.conversion": map[string]any{
		"strategy": "Webhook", "webhook": map[string]any{"conversionReviewVersions": []any{"v1"}, "clientConfig": map[string]any{"url": server.URL, "caBundle": ca}}}}})
	e.post(t, d, "v1beta1", "local", map[string]any{"hostPort": "localhost:1234"})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.cfg.Host+collection(d, "v1")+"/local", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan lateReply, 1)
	go func() {
		var late lateReply
		start := time.Now()
		response, err := e.client.Do(request)
		late.took, late.err = time.Since(start), err
		if err == nil {
			late.code = response.StatusCode
			late.body, late.err = io.ReadAll(response.Body)
			_ = response.Body.Close()
		}
		mu.Lock()
		late.timeouts = timeouts
		mu.Unlock()
		done <- late
	}()
	return done
}

// testLimit: the API server waits 30 s for a webhook, and the read fails with the reason then.
func (e *env) testLimit(t *testing.T) {
	late := <-e.late
	if late.err != nil {
		t.Fatal(late.err)
	}
	if late.code != http.StatusInternalServerError || late.took < 30*time.Second || len(late.timeouts) == 0 || late.timeouts[0] != "30s" {
		t.Errorf("after %v: %d, calls with the limits %v", late.took, late.code, late.timeouts)
	}
	has(t, "the answer", late.body, "conversion webhook for", "exceeded")
}

// reads: no call for clients of the version that is stored, and one for those of the other.
func (c *converted) reads(t *testing.T) {
	if calls := c.hook.take(); len(calls) > 0 {
		t.Errorf("calls without an object: %+v", calls)
	}
	path := collection(c.Definition, "v1beta1")
	c.post(t, c.Definition, "v1beta1", "local", map[string]any{"hostPort": "localhost:1234"})
	c.post(t, c.Definition, "v1beta1", "other", map[string]any{"hostPort": "example.com:2345"})
	c.merge(t, path+"/local", `{"metadata": {"labels": {"a": "b"}}}`)
	if items := get[metav1.PartialObjectMetadataList](t, c.env, path, jsonType).Items; len(items) != 2 {
		t.Errorf("objects %+v", items)
	}
	want := map[string][2]string{"local": {"localhost", "1234"}, "other": {"example.com", "2345"}}
	if diff := gocmp.Diff(want, c.hosts(t)); diff != "" {
		t.Errorf("converted (-want +got):\n%s", diff)
	}
	if c.calls(c.current) == 0 {
		t.Error("no call for the version that is not stored")
	}
	for _, call := range c.seen {
		if call.desired == c.old {
			t.Errorf("a call for the version that is stored: %+v", call)
		}
	}
}

// writes: an update and a watch in the version that is not stored need a call.
func (c *converted) writes(t *testing.T) {
	old, path := collection(c.Definition, "v1beta1"), collection(c.Definition, "v1")
	c.merge(t, path+"/other", `{"port": "2346"}`)
	if c.calls(c.old) == 0 {
		t.Error("no call for a write in the version that is not stored")
	}
	if u := c.etcd(t, c.Spec.Group+"/crontabs/")["other"]; u.GetAPIVersion() != c.old || u.Object["hostPort"] != "example.com:2346" {
		t.Errorf("stored: %v", u)
	}
	version := get[metav1.PartialObjectMetadataList](t, c.env, old, jsonType).ResourceVersion
	c.merge(t, old+"/local", `{"hostPort": "localhost:9"}`)
	watched := c.watch(t, path+"?resourceVersion="+version, `"port":"9"`)
	has(t, "the watch", watched, `"apiVersion":"`+c.current+`"`, `"host":"localhost"`, `"port":"9"`)
	if c.calls(c.current) == 0 {
		t.Error("no call for a watch in the version that is not stored")
	}
}

// mixed: objects of both versions are read in one, after the storage version has changed.
func (c *converted) mixed(t *testing.T) {
	c.change(t, c.Name, func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Versions[0].Storage, d.Spec.Versions[1].Storage = false, true
	})
	daemontest.Eventually(t, bound, func() error {
		c.merge(t, collection(c.Definition, "v1")+"/other", fmt.Sprintf(`{"metadata": {"labels": {"at": "%d"}}}`, time.Now().UnixNano()))
		if got := c.versions(t, c.Definition)["other"]; got != c.current {
			return fmt.Errorf("stored in %s", got)
		}
		return nil
	})
	if got := c.versions(t, c.Definition)["local"]; got != c.old {
		t.Errorf("the other object is stored in %s", got)
	}
	want := map[string][2]string{"local": {"localhost", "9"}, "other": {"example.com", "2346"}}
	if diff := gocmp.Diff(want, c.hosts(t)); diff != "" {
		t.Errorf("objects of both versions (-want +got):\n%s", diff)
	}
	c.calls(c.current)
}

func checkCalls(t *testing.T, calls []call) {
	t.Helper()
	seen := map[string]bool{}
	for _, c := range calls {
		if c.method != http.MethodPost || !strings.HasPrefix(c.contentType, jsonType) || c.apiVersion != "apiextensions.k8s.io/v1beta1" || c.uid == "" || seen[c.uid] || c.certificates != 0 {
			t.Errorf("call %+v", c)
		}
		seen[c.uid] = true
		if len(c.versions) == 0 {
			t.Errorf("a call without objects: %+v", c)
		}
		for _, v := range c.versions {
			if v == c.desired {
				t.Errorf("an object is sent that has the version already: %+v", c)
			}
		}
	}
}

// testService proves that the certificate of a webhook behind a Service is verified for the
// name of the Service, which path is asked, and that the API server reaches Services through
// the egress selection "cluster" and URLs through "controlplane".
// It observes VER-83 and VER-85 of docs/requirements.md.
func (e *env) testService(t *testing.T) {
	const right = "example-conversion-webhook-server.default.svc"
	hook := &recorder{}
	ports, ca := map[string]int{}, []byte(nil)
	for use, name := range map[string]string{"service": right, "wrong": "localhost", "url": "localhost"} {
		server := httptest.NewUnstartedServer(hook)
		cert, text := selfSigned(t, name)
		server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
		server.StartTLS()
		t.Cleanup(server.Close)
		ports[use], ca = server.Listener.Addr().(*net.TCPAddr).Port, append(ca, text...)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "example-conversion-webhook-server", Namespace: "default"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}}
	if _, err := e.Client.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, test := range []struct{ use, selection, want string }{{"service", "cluster", ""}, {"wrong", "cluster", "not " + right}, {"url", "controlplane", ""}} {
		set := map[string]any{"spec.conversion.webhook.clientConfig.caBundle": ca, "spec.conversion.webhook.clientConfig.service.port": ports[test.use]}
		if test.use == "url" {
			set = map[string]any{"spec.conversion.webhook.clientConfig": map[string]any{"caBundle": ca, "url": fmt.Sprintf("https://localhost:%d/crdconvert", ports["url"])}}
		}
		d := e.create(t, &testCase{Index: 520 + i, File: "crontabs-versions.yaml", Set: set})
		e.post(t, d, "v1beta1", "local", map[string]any{"hostPort": "localhost:1234"})
		daemontest.Eventually(t, bound, func() error { // until the API server knows the Service
			r := e.raw(t, http.MethodGet, collection(d, "v1")+"/local", "", jsonType, "")
			if test.want == "" && r.code != http.StatusOK || test.want != "" && !strings.Contains(string(r.body), test.want) {
				return errors.New(string(r.body))
			}
			return nil
		})
		for selection, proxy := range e.egress {
			if went := proxy.dialed(fmt.Sprintf("localhost:%d", ports[test.use])); went != (selection == test.selection) {
				t.Errorf("%s: through %s: %v", test.use, selection, went)
			}
		}
	}
	for _, c := range hook.take() {
		if c.path != "/crdconvert" {
			t.Errorf("the path is %s", c.path)
		}
	}
}

func selfSigned(t *testing.T, name string) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
