// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/crd/internal/crdtest"
	"github.com/fairlead-dev/fairlead/pkg/crd/validate"
)

// verdict is what is compared of an answer.
type verdict struct {
	Code     int32
	Causes   []metav1.StatusCause
	Warnings []string
}

func view(a answer) verdict {
	v := verdict{Warnings: a.warnings}
	if a.status != nil {
		v.Code = a.status.Code
		if a.status.Details != nil && v.Code == http.StatusUnprocessableEntity {
			v.Causes = a.status.Details.Causes
		}
	}
	return v.sorted()
}

func viewOf(r *validate.Result) verdict {
	v := verdict{Warnings: r.Warnings}
	if s := r.Status(); s != nil {
		v.Code = s.Code
		if s.Details != nil && v.Code == http.StatusUnprocessableEntity {
			v.Causes = s.Details.Causes
		}
	}
	return v.sorted()
}

func (v verdict) sorted() verdict {
	slices.Sort(v.Warnings)
	slices.SortFunc(v.Causes, func(a, b metav1.StatusCause) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Message, b.Message))
	})
	return v
}

func compareAnswer(t *testing.T, got answer, tool *validate.Result) {
	t.Helper()
	if tool.Err != nil && tool.Status() == nil {
		t.Fatalf("the tool fails: %v", tool.Err)
	}
	if diff := gocmp.Diff(view(got), viewOf(tool)); diff != "" {
		t.Errorf("answer (-kube-apiserver +tool):\n%s\n%v", diff, got.status)
	}
}

// compareStored compares the body of the response, and what etcd holds.
func (e *env) compareStored(t *testing.T, d *crd.Definition, got *unstructured.Unstructured, tool *validate.Result) {
	t.Helper()
	if tool.Err != nil {
		return // compareAnswer has said so
	}
	stored := e.etcd(t, d.Spec.Group+"/"+d.Spec.Names.Plural+"/")[got.GetName()]
	if stored == nil {
		t.Fatalf("etcd has no %s", got.GetName())
	}
	for name, pair := range map[string][2]*unstructured.Unstructured{"response": {got, tool.Returned}, "stored object": {stored, tool.Stored}} {
		if diff := gocmp.Diff(withoutServerFields(pair[0]), withoutServerFields(pair[1])); diff != "" {
			t.Errorf("%s (-kube-apiserver +tool):\n%s", name, diff)
		}
	}
}

// withoutServerFields leaves out what the API server makes up.
func withoutServerFields(u *unstructured.Unstructured) map[string]any {
	out := u.DeepCopy()
	for _, f := range []string{"uid", "creationTimestamp", "resourceVersion", "managedFields", "selfLink"} {
		unstructured.RemoveNestedField(out.Object, "metadata", f)
	}
	return crdtest.AsJSON(out.Object)
}

// etcd reads the stored objects below a prefix, by name.
func (e *env) etcd(t *testing.T, prefix string) map[string]*unstructured.Unstructured {
	t.Helper()
	key := "/registry/" + prefix
	end := key[:len(key)-1] + string(key[len(key)-1]+1)
	body := fmt.Sprintf(`{"key":%q,"range_end":%q}`, base64.StdEncoding.EncodeToString([]byte(key)), base64.StdEncoding.EncodeToString([]byte(end)))
	resp, err := http.Post(e.Etcd+"/v3/kv/range", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Kvs []struct{ Key, Value []byte } `json:"kvs"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	out := map[string]*unstructured.Unstructured{}
	for _, kv := range answer.Kvs {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(kv.Value); err != nil {
			t.Fatalf("%s: %v", kv.Key, err)
		}
		out[u.GetName()] = u
	}
	return out
}
