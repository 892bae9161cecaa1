// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// documents are the steps of TestDocuments.
var documents = []struct {
	name string
	run  func(*env, *testing.T)
}{
	{"kubectl", (*env).testKubectl}, // the first, because others have definitions with the same names in other groups
	{"controllers", (*env).testControllers},
	{"deletion", (*env).testDeletion},
	{"discovery", (*env).testDiscovery},
	{"requests", (*env).testRequests},
	{"finalizers", (*env).testFinalizers},
	{"stored", (*env).testStored},
	{"columns", (*env).testColumns},
	{"selectors", (*env).testSelectors},
	{"subresources", (*env).testSubresources},
	{"defaults", (*env).testDefaults},
	{"openapi", (*env).testOpenAPI},
	{"versions", (*env).testVersions},
	{"priority", (*env).testPriority},
	{"webhook", (*env).testWebhook},
	{"service", (*env).testService},
	{"apply", (*env).testApply},
	{"reset", (*env).testReset},
	{"handover", (*env).testHandover},
	{"kubectlApply", (*env).testKubectlApply},
	{"markers", (*env).testMarkers},
	{"dryRun", (*env).testDryRun},
	{"media", (*env).testMedia},
	{"removal", (*env).testRemoval},
}

// TestDocuments does with a real control plane what the pages of the Kubernetes documentation
// on CustomResourceDefinitions and their versions describe, with the definitions and objects
// of these pages.
func TestDocuments(t *testing.T) {
	t.Parallel()
	testutil.Full(t, "observes Kubernetes with kube-controller-manager and kubectl")
	testutil.Limit(t, 10*time.Minute) // the steps are subtests that use one control plane, one after the other
	proxies, config := egress(t, "cluster", "controlplane")
	e := startEnv(t, "--egress-selector-config-file="+config)
	e.egress = proxies
	daemontest.Start(t, nil, daemontest.Components(t, "kube-controller-manager")["kube-controller-manager"],
		"--kubeconfig="+e.Kubeconfig, "--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=false",
		"--controllers=namespace-controller,disruption-controller,horizontal-pod-autoscaler-controller,serviceaccount-controller,garbage-collector-controller",
		"--horizontal-pod-autoscaler-sync-period=1s")
	for _, step := range documents {
		t.Run(step.name, func(t *testing.T) { step.run(e, t) })
		if step.name == "controllers" { // kubectl has named the kind by its short name until then, which its definition has as well
			e.late = e.silentWebhook(t)                    // takes half a minute; the step webhook looks at the result
			e.owners = e.create(t, &testCase{Index: 1560}) // for the step removal: the garbage collector discovers resources twice a minute
		}
	}
}

// reply is a response in full.
type reply struct {
	code   int
	header http.Header
	body   []byte
}

// raw sends a request with any media types.
func (e *env) raw(t *testing.T, method, path, contentType, accept, body string) reply {
	t.Helper()
	for end := time.Now().Add(bound); ; time.Sleep(100 * time.Millisecond) {
		r := e.once(t, method, path, contentType, accept, body)
		// kube-apiserver answers so while it fills the cache of a changed definition. Clients send the request again.
		if r.code != http.StatusTooManyRequests || r.header.Get("Retry-After") == "" || time.Now().After(end) {
			return r
		}
	}
}

func (e *env) once(t *testing.T, method, path, contentType, accept, body string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, e.cfg.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", accept)
	resp, err := e.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, text}
}

// watch returns what a watch sends, until a line has a text.
func (e *env) watch(t *testing.T, path, text string) (all []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.cfg.Host+path+"&watch=true", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := e.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		all = append(all, line...)
		if err != nil {
			t.Fatalf("no %s in the watch %s: %v\n%s", text, path, err, all)
		}
		if bytes.Contains(line, []byte(text)) {
			return all
		}
	}
}

// get decodes what is at a path.
func get[T any](t *testing.T, e *env, path, accept string) (out T) {
	t.Helper()
	r := e.raw(t, http.MethodGet, path, "", accept, "")
	if r.code != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, r.code, r.body)
	}
	unmarshal(t, r.body, &out)
	return out
}

// merge sends a merge patch, which must succeed.
func (e *env) merge(t *testing.T, path, patch string) {
	t.Helper()
	if r := e.raw(t, http.MethodPatch, path, "application/merge-patch+json", "application/json", patch); r.code != http.StatusOK {
		t.Fatalf("PATCH %s: %d %s", path, r.code, r.body)
	}
}

// create makes a definition in the group of its index, and waits until it is served.
func (e *env) create(t *testing.T, c *testCase) *crd.Definition {
	t.Helper()
	d := c.Definition(t, c.Schema)
	if a := e.do(t, http.MethodPost, definitionsPath, d.Document.Raw); a.status != nil {
		t.Fatal(a.status)
	}
	e.established(t, d.Name)
	for _, v := range d.Spec.Versions {
		if v.Served {
			e.eventually(t, collection(d, v.Name), http.StatusOK)
		}
	}
	return d
}

// eventually waits until a GET has a status code.
func (e *env) eventually(t *testing.T, path string, code int) {
	t.Helper()
	daemontest.Eventually(t, bound, func() error {
		if r := e.raw(t, http.MethodGet, path, "", "application/json", ""); r.code != code {
			return fmt.Errorf("GET %s: %d %s", path, r.code, r.body)
		}
		return nil
	})
}

// collection is the path of the objects of a version in the namespace default.
func collection(d *crd.Definition, version string) string {
	return "/apis/" + d.Spec.Group + "/" + version + "/namespaces/default/" + d.Spec.Names.Plural
}

// post creates an object with a name, in a version.
func (e *env) post(t *testing.T, d *crd.Definition, version, name string, content map[string]any) answer {
	t.Helper()
	object := map[string]any{"metadata": map[string]any{"name": name}}
	for k, v := range content {
		object[k] = v
	}
	a := e.do(t, http.MethodPost, collection(d, version), (&testCase{}).Body(d, objectCase{Version: version}, 0, object))
	if a.status != nil {
		t.Fatalf("%s: %s", name, a.status.Message)
	}
	return a
}

// put places an object into etcd as an older API server may have stored it.
func (e *env) put(t *testing.T, key string, object []byte) {
	t.Helper()
	body := fmt.Sprintf(`{"key":%q,"value":%q}`, base64.StdEncoding.EncodeToString([]byte("/registry/"+key)), base64.StdEncoding.EncodeToString(object))
	resp, err := http.Post(e.Etcd+"/v3/kv/put", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("etcd: %s", resp.Status)
	}
}

// condition is the status and reason of a condition of a definition.
func (e *env) condition(t *testing.T, name string, kind apiextensionsv1.CustomResourceDefinitionConditionType) string {
	t.Helper()
	d, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range d.Status.Conditions {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// has reports the parts that a text lacks.
func has(t *testing.T, what string, text []byte, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !bytes.Contains(text, []byte(part)) {
			t.Errorf("%s lacks %q:\n%s", what, part, text)
		}
	}
}
