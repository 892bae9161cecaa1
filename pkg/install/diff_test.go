// SPDX-License-Identifier: Apache-2.0

package install

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func secret(values map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s", "namespace": "n"}, "data": values,
	}}
}

// TestSecretsAreMasked: a diff shows which values differ, and none of them.
func TestSecretsAreMasked(t *testing.T) {
	ch := change{
		Ref: RefOf(secret(nil)), action: Configured,
		live:   secret(map[string]any{"same": "c2FtZQ==", "key": "b2xk", "gone": "Z29uZQ=="}),
		merged: secret(map[string]any{"same": "c2FtZQ==", "key": "bmV3"}),
	}
	d, err := difference(ch)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"c2FtZQ==", "b2xk", "bmV3", "Z29uZQ=="} {
		if strings.Contains(d.Diff, value) {
			t.Errorf("shows %s:\n%s", value, d.Diff)
		}
	}
	for _, line := range []string{"-  key: '*** (before)'", "+  key: '*** (after)'", "-  gone: '***'", "   same: '***'"} {
		if !strings.Contains(d.Diff, line) {
			t.Errorf("lacks %q:\n%s", line, d.Diff)
		}
	}
}

func TestValueAt(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"replicas":   int64(5),
		"containers": []any{map[string]any{"name": "a.b", "image": "x"}},
		"ports":      []any{map[string]any{"containerPort": int64(80), "protocol": "TCP", "hostPort": int64(1)}},
	}}}
	for path, want := range map[string]string{
		".spec.replicas": "5", `.spec.containers[name="a.b"].image`: `"x"`, `.spec.containers[name="c"].image`: "absent",
		`.spec.ports[containerPort=80,protocol="TCP"].hostPort`: "1", ".spec.none.at.all": "absent",
	} {
		if got := valueAt(u, path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if got := valueAt(nil, ".spec"); got != "absent" {
		t.Errorf("nil: %s", got)
	}
}

// TestCredentialsInOtherObjectsAreMasked: a key in a ConfigMap is hidden, says that it differs, and hides nothing else.
func TestCredentialsInOtherObjectsAreMasked(t *testing.T) {
	object := func(key, plain string) *unstructured.Unstructured {
		u := secret(map[string]any{"key.txt": key, "plain": plain})
		u.SetKind("ConfigMap")
		return u
	}
	const pem = "-----BEGIN EC PRIVATE KEY-----\n%s\n-----END EC PRIVATE KEY-----\n"
	before, after := strings.Replace(pem, "%s", "b2xk", 1), strings.Replace(pem, "%s", "bmV3", 1)
	live, merged := object(before, "was"), object(after, "is")
	d, err := difference(change{Ref: RefOf(live), action: Configured, live: live, merged: merged})
	if err != nil {
		t.Fatal(err)
	}
	for _, hidden := range []string{"b2xk", "bmV3", "PRIVATE KEY"} {
		if strings.Contains(d.Diff, hidden) {
			t.Errorf("shows %s:\n%s", hidden, d.Diff)
		}
	}
	for _, line := range []string{"-  key.txt: '*** (before)'", "+  key.txt: '*** (after)'", "-  plain: was", "+  plain: is"} {
		if !strings.Contains(d.Diff, line) {
			t.Errorf("lacks %q:\n%s", line, d.Diff)
		}
	}
	if text, _, _ := unstructured.NestedString(merged.Object, "data", "key.txt"); text != after {
		t.Errorf("masking has changed what is applied: %q", text)
	}
}

// TestCredentialsOfContainersAreMasked: credentials in variables and flags of a workload, which
// a user has set, are hidden; other variables and flags are shown.
func TestCredentialsOfContainersAreMasked(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "d", "namespace": "n"},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
			"args": []any{"--x-token=hidden-1", "--service-account-token-path=/var/run/token", "--port=8080"},
			"env": []any{
				map[string]any{"name": "HTTPS_PROXY", "value": "http://u:hidden-2@proxy.example:3128"},
				map[string]any{"name": "DB_PASSWORD", "value": "hidden-3"}, map[string]any{"name": "MODE", "value": "fast"},
			},
		}}}}},
	}}
	d, err := difference(change{Ref: RefOf(live), action: Deleted, live: live})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(d.Diff, "hidden-") {
		t.Errorf("a credential is shown:\n%s", d.Diff)
	}
	for _, shown := range []string{"--port=8080", "/var/run/token", "value: fast", "name: DB_PASSWORD"} {
		if !strings.Contains(d.Diff, shown) {
			t.Errorf("%q is not shown:\n%s", shown, d.Diff)
		}
	}
}
