// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/crd/internal/crdtest"
	"github.com/fairlead-dev/fairlead/pkg/crd/lint"
	"github.com/fairlead-dev/fairlead/pkg/crd/validate"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

const bound = time.Minute

// env is a real etcd and kube-apiserver.
type env struct {
	*daemontest.ControlPlane
	cfg    *rest.Config
	client *http.Client
	crds   apiextensions.Interface
	egress map[string]*egressProxy // of TestDocuments, by selection
	late   <-chan lateReply        // of TestDocuments
	owners *crd.Definition         // of TestDocuments, for the step removal
}

func startEnv(t *testing.T, apiServerArgs ...string) *env {
	t.Helper()
	cp := daemontest.StartControlPlane(t, apiServerArgs...)
	cfg, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &env{ControlPlane: cp, cfg: cfg, client: client, crds: apiextensions.NewForConfigOrDie(cfg)}
}

// TestAgainstAPIServer compares the tools with a real API server, the same for all subtests.
func TestAgainstAPIServer(t *testing.T) {
	t.Parallel()
	testutil.Limit(t, 5*time.Minute) // the subtests use one control plane
	e := startEnv(t, "--feature-gates=StorageVersionMigrator=true", "--runtime-config=storagemigration.k8s.io/v1beta1=true")
	t.Run("definitions and objects", e.testAnswers)
	t.Run("changes", e.testChanges)
	t.Run("conversions", e.testConversions)
	t.Run("migrate", e.testMigrate)
}

// answer is a response of the API server.
type answer struct {
	status   *metav1.Status // of a refusal
	object   *unstructured.Unstructured
	warnings []string
}

func (e *env) do(t *testing.T, method, path string, body []byte) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, e.cfg.Host+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var a answer
	headers, _ := utilnet.ParseWarningHeaders(resp.Header.Values("Warning"))
	for _, h := range headers {
		a.warnings = append(a.warnings, h.Text)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		a.status = &metav1.Status{Code: int32(resp.StatusCode)}
		if json.Unmarshal(text, a.status) != nil {
			a.status.Message = string(text) // the path is not served
		}
		return a
	}
	a.object = &unstructured.Unstructured{}
	if err := a.object.UnmarshalJSON(text); err != nil {
		t.Fatalf("%s %s: %v\n%s", method, path, err, text)
	}
	return a
}

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// testAnswers proves that kube-apiserver says of each definition and object in
// testdata/cases what the tools say of it.
func (e *env) testAnswers(t *testing.T) {
	accepted := map[*testCase]*crd.Definition{}
	for _, c := range crdtest.Cases(t) {
		schema := c.Schema
		if c.Before != nil {
			schema = c.Before
		}
		t.Run(c.Name, func(t *testing.T) {
			d := c.Definition(t, schema)
			got := e.do(t, http.MethodPost, definitionsPath+"?fieldValidation=Ignore", d.Document.Raw)
			findings, err := lint.Definition(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			compareDefinition(t, got, findings)
			if got.status == nil {
				accepted[c] = d
			}
		})
	}
	for c, d := range accepted {
		t.Run(c.Name+" objects", func(t *testing.T) {
			if len(c.Objects) == 0 {
				return
			}
			e.established(t, d.Name)
			if c.Before == nil {
				e.compareObjects(t, c, d)
				return
			}
			e.compareRatcheting(t, c)
		})
	}
}

func compareDefinition(t *testing.T, got answer, findings []lint.Finding) {
	t.Helper()
	var want, have []string
	for _, f := range lint.Refused(findings) {
		_, detail, _ := strings.Cut(f.Message, ": ")
		want = append(want, f.Field+" "+lastLine(detail))
	}
	if got.status != nil {
		if got.status.Details == nil {
			t.Fatalf("the API server says %+v", got.status)
		}
		for _, cause := range got.status.Details.Causes {
			have = append(have, crd.PathInV1(cause.Field)+" "+lastLine(cause.Message))
		}
	}
	// Messages with values differ in how they show these, so they are compared by their ends.
	if len(want) != len(have) {
		t.Fatalf("the API server says\n%s\nlint says\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
	for _, w := range want {
		field, detail, _ := strings.Cut(w, " ")
		i := slices.IndexFunc(have, func(h string) bool { return strings.HasPrefix(h, field+" ") && strings.HasSuffix(h, detail) })
		if i < 0 {
			t.Errorf("the API server says\n%s\nlint says\n%s", strings.Join(have, "\n"), w)
			continue
		}
		have = slices.Delete(have, i, i+1)
	}
}

func lastLine(s string) string { return s[strings.LastIndexByte(s, '\n')+1:] }

func (e *env) established(t *testing.T, name string) {
	t.Helper()
	daemontest.Eventually(t, bound, func() error {
		d, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range d.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%s is not established", name)
	})
}

// url is the path of the objects of a definition, in the version of an object.
func url(d *crd.Definition, body []byte, name string, query ...string) string {
	var object metav1.PartialObjectMetadata
	_ = json.Unmarshal(body, &object)
	path := "/apis/" + d.Spec.Group + "/" + object.GroupVersionKind().Version
	if d.Spec.Scope == apiextensionsv1.NamespaceScoped {
		path += "/namespaces/default"
	}
	path += "/" + d.Spec.Names.Plural
	if name != "" {
		path += "/" + name
	}
	return path + "?" + strings.Join(query, "&")
}

func (e *env) compareObjects(t *testing.T, c *testCase, d *crd.Definition) {
	v, err := validate.New(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range c.Objects {
		t.Run(fmt.Sprintf("%d %s", i, o.Name), func(t *testing.T) {
			mode := "fieldValidation=Warn"
			if o.Strict {
				mode = "fieldValidation=Strict"
			}
			body := c.Body(d, o, i, o.Object)
			var got answer
			if o.Old == nil {
				got = e.served(t, d, http.MethodPost, url(d, body, "", mode), body)
			} else {
				old := e.served(t, d, http.MethodPost, url(d, body, ""), c.Body(d, o, i, o.Old))
				if old.status != nil {
					t.Fatalf("the old object is refused: %+v", old.status)
				}
				got = e.do(t, http.MethodPut, url(d, body, subresource(o, old.object.GetName()), mode), withVersion(t, body, old.object.GetResourceVersion()))
			}
			compareAnswer(t, got, c.Tool(t, v, d, o, i))
			if got.object != nil {
				e.compareStored(t, d, got.object, c.Tool(t, v, d, o, i))
			}
		})
	}
}

// served waits until the API server serves the objects: discovery is a little late.
func (e *env) served(t *testing.T, d *crd.Definition, method, path string, body []byte) (a answer) {
	t.Helper()
	var object metav1.PartialObjectMetadata
	_ = json.Unmarshal(body, &object)
	v := crd.Version(d.CustomResourceDefinition, object.GroupVersionKind().Version)
	daemontest.Eventually(t, bound, func() error {
		if a = e.do(t, method, path, body); a.status != nil && a.status.Code == http.StatusNotFound && v != nil && v.Served {
			return errors.New(a.status.Message)
		}
		return nil
	})
	return a
}

func subresource(o objectCase, name string) string {
	if o.Status {
		return name + "/status"
	}
	return name
}

func withVersion(t *testing.T, body []byte, version string) []byte {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(body); err != nil {
		t.Fatal(err)
	}
	u.SetResourceVersion(version)
	text, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// compareRatcheting stores the old objects under the old schema, changes the schema, and
// compares the answers to dry runs once the API server uses the new one.
func (e *env) compareRatcheting(t *testing.T, c *testCase) {
	before, d := c.Definition(t, c.Before), c.Definition(t, c.Schema)
	v, err := validate.New(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	versions := map[int]string{}
	for i, o := range c.Objects {
		if o.Old == nil {
			continue
		}
		body := c.Body(before, o, i, o.Old)
		old := e.served(t, before, http.MethodPost, url(before, body, ""), body)
		if old.status != nil {
			t.Fatalf("the old object is refused: %+v", old.status)
		}
		versions[i] = old.object.GetResourceVersion()
	}
	stored, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), d.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored.Spec = d.Spec
	if _, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, o := range c.Objects {
		body := c.Body(d, o, i, o.Object)
		want := c.Tool(t, v, d, o, i)
		daemontest.Eventually(t, bound, func() error {
			var got answer
			if o.Old == nil {
				got = e.do(t, http.MethodPost, url(d, body, "", "dryRun=All"), body)
			} else {
				got = e.do(t, http.MethodPut, url(d, body, fmt.Sprintf("o%d", i), "dryRun=All"), withVersion(t, body, versions[i]))
			}
			if diff := gocmp.Diff(view(got), viewOf(want)); diff != "" {
				return fmt.Errorf("object %d (-kube-apiserver +tool):\n%s", i, diff)
			}
			return nil
		})
	}
}

func TestMain(m *testing.M) { os.Exit(daemontest.RunParallel(m, 8)) }
