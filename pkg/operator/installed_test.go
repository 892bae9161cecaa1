// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	operatorbundle "github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/install"
	"github.com/fairlead-dev/fairlead/pkg/operator"
)

// refusals records what the API server forbids.
type refusals struct {
	mu   sync.Mutex
	list []string
}

// over records what goes through a transport.
func (r *refusals) over(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err == nil && response.StatusCode == http.StatusForbidden {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.list = append(r.list, request.Method+" "+request.URL.Path)
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func (r *refusals) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.list)
	list := slices.Compact(r.list)
	r.list = nil
	return list
}

// installed starts an API server with the rendered operator's objects, and an operator with no
// other rights than its ServiceAccount's.
func installed(t *testing.T, change ...func(*operator.Options)) (*env, *refusals) {
	t.Helper()
	e := start(t)
	objects, err := operatorbundle.Objects(operatorbundle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := install.Apply(t.Context(), e.cfg, objects, install.Options{Party: install.Operator}); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(3600))}}
	token, err := e.client.CoreV1().ServiceAccounts(operatorbundle.DefaultNamespace).CreateToken(t.Context(), operatorbundle.Name, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cfg, refused := rest.CopyConfig(e.cfg), &refusals{}
	cfg.BearerToken = token.Status.Token
	cfg.Wrap(refused.over)
	runWith(e, cfg, change...)
	return e, refused
}

func runWith(e *env, cfg *rest.Config, change ...func(*operator.Options)) {
	e.Helper()
	port := daemontest.Ports(e.T, 1)[0]
	ctx, cancel := context.WithCancel(e.Context())
	done := make(chan error, 1)
	o := operator.Options{
		Namespace: operatorbundle.DefaultNamespace, WebhookAddress: "127.0.0.1:" + port, WebhookURL: "https://127.0.0.1:" + port + "/convert",
		WebhookNames: []string{"127.0.0.1"}, MetricsAddress: "0", HealthAddress: "0", Version: "v1.2.3", LeaderElect: true,
	}
	for _, f := range change {
		f(&o)
	}
	go func() { done <- operator.Run(ctx, cfg, o) }()
	e.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			e.Errorf("the operator ended: %v", err)
		}
	})
}

func (e *env) kind(plural string) dynamic.NamespaceableResourceInterface {
	return dynamic.NewForConfigOrDie(e.cfg).Resource(schema.GroupVersionResource{Group: "fairlead.dev", Version: "v1beta1", Resource: plural})
}

func object(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "fairlead.dev/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}}
}

// condition waits for a condition of an object's current generation with a reason.
func (e *env) condition(client dynamic.ResourceInterface, name, condition, reason string) metav1.Condition {
	e.Helper()
	var found metav1.Condition
	daemontest.Eventually(e.T, bound, func() error {
		u, err := client.Get(e.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := struct {
			Status struct {
				Conditions []metav1.Condition `json:"conditions"`
			} `json:"status"`
		}{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &status); err != nil {
			return err
		}
		c := meta.FindStatusCondition(status.Status.Conditions, condition)
		if c == nil || c.Reason != reason || c.ObservedGeneration != u.GetGeneration() {
			return fmt.Errorf("%s %s, generation %d: condition %s is %+v, want reason %s", u.GetKind(), name, u.GetGeneration(), condition, c, reason)
		}
		found = *c
		return nil
	})
	return found
}

// event waits for an event about an object with a reason and a part of its note.
func (e *env) event(kind, reason, note string) {
	e.Helper()
	daemontest.Eventually(e.T, bound, func() error {
		list, err := e.client.EventsV1().Events("").List(e.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var told []string
		for _, ev := range list.Items {
			if ev.Regarding.Kind == kind && ev.Reason == reason && strings.Contains(ev.Note, note) {
				return nil
			}
			told = append(told, ev.Regarding.Kind+" "+ev.Reason+" "+ev.Note)
		}
		return fmt.Errorf("no event %s of a %s with %q among\n%s", reason, kind, note, strings.Join(told, "\n"))
	})
}

// TestInstalled: with the rights that are rendered, and no others, the operator converts,
// applies a bundle with all parts, reports by conditions and events, and takes SchedulerProfiles
// and TunnelPools into account.
func TestInstalled(t *testing.T) {
	e, refused := installed(t)
	everything := map[string]any{
		"gateway": map[string]any{"enabled": true}, "tunnelAPI": map[string]any{"enabled": true},
		"konnectivity": map[string]any{
			"leaseCounting": true, "server": map[string]any{"proxyStrategies": []any{"destHost", "default"}},
			"agent": map[string]any{"identifiers": []any{map[string]any{"type": "Host", "value": "$(NODE_NAME)"}}},
		},
		"scheduler": map[string]any{"plugins": map[string]any{"tunnelReach": map[string]any{"enabled": true}}},
	}
	if _, err := e.bundles.Create(t.Context(), object("Bundle", "", "default", everything), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.reconciled(v1beta1.ReasonAsWanted)
	if list := refused.take(); len(list) > 0 {
		t.Errorf("the API server has refused\n%s", strings.Join(list, "\n"))
	}
	if _, err := e.old.Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("the webhook does not convert: %v", err)
	}
	testConditions(e)
	e.event("Bundle", "Changed", "Deployment kube-system/my-scheduler created")
	t.Run("profiles", func(t *testing.T) { e.T = t; testProfiles(e) })
	t.Run("pools", func(t *testing.T) { e.T = t; testPools(e) })
	e.T = t

	// Restored, and what is left out of the Bundle goes.
	if err := e.client.AppsV1().DaemonSets("kube-system").Delete(t.Context(), "konnectivity-agent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, bound, func() error {
		_, err := e.client.AppsV1().DaemonSets("kube-system").Get(t.Context(), "konnectivity-agent", metav1.GetOptions{})
		return err
	})
	e.patch(`{"spec": {"gateway": null}}`)
	e.reconciled(v1beta1.ReasonAsWanted)
	daemontest.Eventually(t, bound, func() error {
		if _, err := e.client.AppsV1().Deployments("kube-system").Get(t.Context(), "fairlead-gateway", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the gateway is not gone: %w", err)
		}
		return nil
	})
	e.event("Bundle", "Changed", "Deployment kube-system/fairlead-gateway deleted")
	e.patch(`{"spec": {"scheduler": {"replicas": 0}}}`)
	e.reconciled(v1beta1.ReasonInvalidBundle)
	e.condition(e.bundles, "default", v1beta1.BundleStalled, v1beta1.ReasonInvalidBundle)
	e.event("Bundle", "InvalidBundle", "replicas")
	if list := refused.take(); len(list) > 0 {
		t.Errorf("the API server has refused\n%s", strings.Join(list, "\n"))
	}
}

// testConditions: each condition is of the current generation, and says what is so: nothing runs
// Pods here.
func testConditions(e *env) {
	e.Helper()
	b, err := e.bundle()
	if err != nil {
		e.Fatal(err)
	}
	want := map[string]string{
		v1beta1.BundleReconciled: "True AsWanted", v1beta1.BundleCertificatesValid: "True Valid", v1beta1.BundleStalled: "False AsWanted",
		v1beta1.BundleProgressing: "True RollingOut", v1beta1.BundleTunnelAvailable: "False NotReady", v1beta1.BundleSchedulerLeading: "False NoLeader",
		v1beta1.BundleReady: "False NotReady",
	}
	for _, c := range b.Status.Conditions {
		if got := string(c.Status) + " " + c.Reason; got != want[c.Type] || c.ObservedGeneration != b.Generation || c.Message == "" {
			e.Errorf("condition %+v, want %s", c, want[c.Type])
		}
		delete(want, c.Type)
	}
	if len(want) > 0 {
		e.Errorf("these conditions are missing: %v", want)
	}
	valid := meta.FindStatusCondition(b.Status.Conditions, v1beta1.BundleCertificatesValid)
	if in := time.Now().Add(89 * 24 * time.Hour).UTC().Format("2006-01-02"); !strings.Contains(valid.Message, in) && !strings.Contains(valid.Message, time.Now().Add(90*24*time.Hour).UTC().Format("2006-01-02")) {
		e.Errorf("the condition does not say that the certificate ends 90 days from now: %q", valid.Message)
	}
}
