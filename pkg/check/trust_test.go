// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

func runCheck(t *testing.T, env *Env, id string) Result {
	t.Helper()
	for _, c := range All() {
		if c.ID == id {
			return runOne(t.Context(), env, c, Options{}.withDefaults(), shared{})
		}
	}
	t.Fatalf("there is no check %s", id)
	return Result{}
}

// TestKubeletCA proves that the check warns of the one API server that does not verify kubelets, names it and the remedy, reports nothing
// if all do, and is skipped if no API server is visible.
func TestKubeletCA(t *testing.T) {
	const flag = "--kubelet-certificate-authority=/etc/kubernetes/pki/ca.crt"
	for name, tc := range map[string]struct {
		args   map[string][]string
		status Status
		warned string
	}{
		"verified":       {map[string][]string{"a": {"kube-apiserver", flag}, "b": {"kube-apiserver", flag}}, OK, ""},
		"one lacks it":   {map[string][]string{"a": {"kube-apiserver", flag}, "b": {"kube-apiserver"}}, OK, "b: "},
		"not set":        {map[string][]string{"a": {"kube-apiserver", "--v=2"}}, OK, "a: "},
		"not to be seen": {nil, Skipped, ""},
	} {
		t.Run(name, func(t *testing.T) {
			api := newStubAPI(t)
			for pod, args := range tc.args {
				api.put("/api/v1/namespaces/kube-system/pods/"+pod, &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: "kube-system", Labels: map[string]string{"component": "kube-apiserver"}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "kube-apiserver", Command: args}}},
				})
			}
			res := runCheck(t, api.env(t), "tunnel-kubelet-ca")
			text := strings.Join(res.Warnings, "\n")
			if res.Status != tc.status || (tc.warned == "") != (text == "") || !strings.HasPrefix(text, tc.warned) {
				t.Errorf("%+v", res)
			}
			if tc.warned != "" && !strings.Contains(text, "serverTLSBootstrap") {
				t.Errorf("the warning names no way out: %s", text)
			}
		})
	}
	t.Run("a provider knows", func(t *testing.T) {
		env := newStubAPI(t).env(t)
		env.APIServerArgs = func(context.Context) (map[string][]string, error) { return map[string][]string{"mine": {"--v=2"}}, nil }
		if res := runCheck(t, env, "tunnel-kubelet-ca"); len(res.Warnings) != 1 || !strings.HasPrefix(res.Warnings[0], "mine: ") {
			t.Errorf("%+v", res)
		}
	})
}

// TestFrontProxyCA proves that the check fails where the two CAs are one, where they share a key, and where one of several is the same, and
// passes where they are different.
// It observes AGG-31 of docs/requirements.md.
func TestFrontProxyCA(t *testing.T) {
	newCA := func(name string) pki.KeyPair {
		ca, err := pki.NewCA(pki.FromBundle(v1alpha1.New()), name, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return ca
	}
	pem := func(pairs ...pki.KeyPair) string {
		var out strings.Builder
		for _, p := range pairs {
			out.Write(p.CertPEM())
		}
		return out.String()
	}
	client, front := newCA("kubernetes"), newCA("front-proxy-ca")
	for name, tc := range map[string]struct {
		client, header string
		status         Status
	}{
		"two CAs":            {pem(client), pem(front), OK},
		"one CA":             {pem(client), pem(client), Failed},
		"one of several":     {pem(client), pem(front, client), Failed},
		"no certificate":     {pem(client), "nonsense", Failed},
		"no request headers": {pem(client), "", Skipped},
	} {
		t.Run(name, func(t *testing.T) {
			api := newStubAPI(t)
			api.put("/api/v1/namespaces/kube-system/configmaps/"+authenticationConfigMap, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: authenticationConfigMap, Namespace: "kube-system"},
				Data:       map[string]string{"client-ca-file": tc.client, "requestheader-client-ca-file": tc.header},
			})
			if res := runCheck(t, api.env(t), "front-proxy-ca"); res.Status != tc.status || (res.Status == Failed) != (res.Hint != "") {
				t.Errorf("%+v, want %s", res, tc.status)
			}
		})
	}
	t.Run("ConfigMap missing", func(t *testing.T) {
		if res := runCheck(t, newStubAPI(t).env(t), "front-proxy-ca"); res.Status != Skipped {
			t.Errorf("%+v", res)
		}
	})
}
