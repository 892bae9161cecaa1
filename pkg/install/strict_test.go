// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// strictOnly counts server-side applies, and keeps those that do not ask the API server to
// refuse what it does not know.
type strictOnly struct {
	next http.RoundTripper

	mu      sync.Mutex
	applies map[bool]int // by whether it is a dry run
	lax     []string
}

func (s *strictOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch && strings.HasPrefix(r.Header.Get("Content-Type"), string(types.ApplyYAMLPatchType)) {
		query := r.URL.Query()
		s.mu.Lock()
		s.applies[query.Has("dryRun")]++
		if got := query.Get("fieldValidation"); got != metav1.FieldValidationStrict {
			s.lax = append(s.lax, fmt.Sprintf("%s: fieldValidation %q", r.URL.Path, got))
		}
		s.mu.Unlock()
	}
	return s.next.RoundTrip(r)
}

// testStrict: every server-side apply, of dry runs as well, asks for strict validation. The
// API server's default for other clients is to warn only.
// It observes API-70 and API-71 of docs/requirements.md.
func testStrict(e env) {
	s := &strictOnly{applies: map[bool]int{}}
	strict := e
	strict.cfg = rest.CopyConfig(e.cfg)
	strict.cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { s.next = next; return s })
	strict.apply(objects(e.t, oldBundle), install.Options{})
	strict.apply(objects(e.t, nil), install.Options{Force: true}) // configures, creates and prunes
	strict.apply(objects(e.t, nil), install.Options{DryRun: true})
	if _, err := install.Diff(e.t.Context(), strict.cfg, objects(e.t, oldBundle)); err != nil {
		e.t.Fatal(err)
	}
	if _, err := install.Uninstall(e.t.Context(), strict.cfg, install.UninstallOptions{}.Quick()); err != nil {
		e.t.Fatal(err)
	}
	if s.applies[false] == 0 || s.applies[true] == 0 {
		e.t.Errorf("seen %v applies, by whether they are dry runs: the test does not see what it is about", s.applies)
	}
	for _, l := range s.lax {
		e.t.Error(l)
	}
}

// testUnknownField: an object with a field that the API server does not know, as one of a
// newer Kubernetes, is a problem among others: it is named, and nothing is changed.
// It observes API-70 and API-71 of docs/requirements.md.
func testUnknownField(e env) {
	odd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": corev1.SchemeGroupVersion.String(), "kind": "ConfigMap",
		"metadata": map[string]any{"name": "odd", "namespace": metav1.NamespaceSystem},
		"dada":     map[string]any{"a": "b"},
	}}
	problems := e.blocked(e.cfg, append(objects(e.t, nil), component.Object(odd)))
	if len(problems) != 1 || problems[0].Object.Name != "odd" || !strings.Contains(problems[0].Message, "dada") ||
		!strings.Contains(problems[0].Hint, "older than the field") {
		e.t.Errorf("%+v", problems)
	}
}
