// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
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
	return installedIn(start(t), change...)
}

// installedIn does the same with an API server that runs.
func installedIn(e *env, change ...func(*operator.Options)) (*env, *refusals) {
	e.Helper()
	t := e.T
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
	e.mayAll(cfg, objects)
	cfg.Wrap(refused.over)
	e.operator = cfg
	runWith(e, cfg, change...)
	return e, refused
}

// mayAll waits until the API server knows the operator's roles: one right of each of their rules.
func (e *env) mayAll(cfg *rest.Config, objects []component.Object) {
	e.Helper()
	reviews := kubernetes.NewForConfigOrDie(cfg).AuthorizationV1().SelfSubjectAccessReviews()
	for _, o := range objects {
		var rules []rbacv1.PolicyRule
		switch role := o.(type) {
		case *rbacv1.ClusterRole:
			rules = role.Rules
		case *rbacv1.Role:
			rules = role.Rules
		}
		for _, r := range rules {
			if o.GetName() != operatorbundle.Name || len(r.Resources) == 0 {
				continue
			}
			right := authorizationv1.ResourceAttributes{Namespace: o.GetNamespace(), Verb: r.Verbs[0], Group: r.APIGroups[0], Name: append(r.ResourceNames, "")[0]}
			right.Resource, right.Subresource, _ = strings.Cut(r.Resources[0], "/")
			testutil.Eventually(e.T, bound, func() error {
				review, err := reviews.Create(e.Context(), &authorizationv1.SelfSubjectAccessReview{
					Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right}}, metav1.CreateOptions{})
				if err == nil && !review.Status.Allowed {
					err = fmt.Errorf("the operator has no right to %+v", right)
				}
				return err
			})
		}
	}
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
	o.Quick(e.metrics)
	for _, f := range change {
		f(&o)
	}
	go func() { done <- operator.Run(ctx, cfg, o) }()
	e.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			e.Errorf("the operator ended: %v", err)
		}
	})
	e.Cleanup(e.stop)
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
	testutil.Eventually(e.T, bound, func() error {
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
	testutil.Eventually(e.T, bound, func() error {
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
	daemontest.Beside(t)
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
	testManyReads(e)
	testConditions(e)
	e.event("Bundle", "Changed", "Deployment kube-system/my-scheduler created")
	t.Run("viewers", func(t *testing.T) { e.T = t; testViewers(e) })
	t.Run("profiles", func(t *testing.T) { e.T = t; testProfiles(e) })
	t.Run("pools", func(t *testing.T) { e.T = t; testPools(e) })
	e.T = t

	// Restored, and what is left out of the Bundle goes.
	if err := e.client.AppsV1().DaemonSets("kube-system").Delete(t.Context(), "konnectivity-agent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, bound, func() error {
		_, err := e.client.AppsV1().DaemonSets("kube-system").Get(t.Context(), "konnectivity-agent", metav1.GetOptions{})
		return err
	})
	e.patch(`{"spec": {"gateway": null}}`)
	e.reconciled(v1beta1.ReasonAsWanted)
	testutil.Eventually(t, bound, func() error {
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

// testManyReads: reads in the old version wait for each other, and none fails.
func testManyReads(e *env) {
	e.Helper()
	var group sync.WaitGroup
	for range 40 {
		group.Go(func() {
			if _, err := e.old.Get(e.Context(), "default", metav1.GetOptions{}); err != nil {
				e.Errorf("one of 40 reads at once: %v", err)
			}
		})
	}
	group.Wait()
}

// testConditions: each condition is of the current generation, and says what is so: nothing runs
// Pods here.
func testConditions(e *env) {
	e.Helper()
	e.condition(e.bundles, "default", v1beta1.BundleStorageMigrated, v1beta1.ReasonMigrated) // comes after the others
	b, err := e.bundle()
	if err != nil {
		e.Fatal(err)
	}
	want := map[string]string{
		v1beta1.BundleStorageMigrated: "True Migrated", v1beta1.BundleControlPlaneReady: "Unknown NotVisible",
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
	if len(b.Status.Components) < 4 {
		e.Errorf("the status lacks workloads: %+v", b.Status.Components)
	}
	for _, c := range b.Status.Components {
		image := ""
		switch c.Kind {
		case "Deployment":
			if d, err := e.client.AppsV1().Deployments("kube-system").Get(e.Context(), c.Name, metav1.GetOptions{}); err != nil {
				e.Error(err)
			} else {
				image = d.Spec.Template.Spec.Containers[0].Image
			}
		case "DaemonSet":
			if d, err := e.client.AppsV1().DaemonSets("kube-system").Get(e.Context(), c.Name, metav1.GetOptions{}); err != nil {
				e.Error(err)
			} else {
				image = d.Spec.Template.Spec.Containers[0].Image
			}
		}
		if c.Image == "" || c.Image != image {
			e.Errorf("the status has the image %q for %s %s, which has %q", c.Image, c.Kind, c.Name, image)
		}
	}
	testCertificates(e, b)
	valid := meta.FindStatusCondition(b.Status.Conditions, v1beta1.BundleCertificatesValid)
	if in := time.Now().Add(89 * 24 * time.Hour).UTC().Format("2006-01-02"); !strings.Contains(valid.Message, in) && !strings.Contains(valid.Message, time.Now().Add(90*24*time.Hour).UTC().Format("2006-01-02")) {
		e.Errorf("the condition does not say that the certificate ends 90 days from now: %q", valid.Message)
	}
}

// testViewers: with the binding of docs/api.md, a user without other rights reads profiles, and no more. The role is part
// of view, edit and admin.
func testViewers(e *env) {
	e.Helper()
	may := func(verb, resource string) bool {
		e.Helper()
		review, err := e.client.AuthorizationV1().SubjectAccessReviews().Create(e.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "ann", Groups: []string{"system:authenticated"}, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: "fairlead.dev", Resource: resource},
		}}, metav1.CreateOptions{})
		if err != nil {
			e.Fatal(err)
		}
		return review.Status.Allowed
	}
	if may("list", "schedulerprofiles") {
		e.Error("a user without a binding may read profiles")
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "schedulerprofiles"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "fairlead-schedulerprofiles-viewer"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}},
	}
	if _, err := e.client.RbacV1().ClusterRoleBindings().Create(e.Context(), binding, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	for _, verb := range []string{"get", "list", "watch"} {
		testutil.Eventually(e.T, bound, func() error {
			if !may(verb, "schedulerprofiles") {
				return fmt.Errorf("the user may not %s profiles", verb)
			}
			return nil
		})
	}
	for _, verb := range []string{"create", "update", "patch", "delete"} {
		if may(verb, "schedulerprofiles") {
			e.Errorf("the user may %s profiles", verb)
		}
	}
	if may("list", "bundles") || may("list", "tunnelpools") {
		e.Error("the user may read other kinds")
	}
	role, err := e.client.RbacV1().ClusterRoles().Get(e.Context(), binding.RoleRef.Name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	for _, name := range []string{"view", "edit", "admin"} {
		if role.Labels["rbac.authorization.k8s.io/aggregate-to-"+name] != "true" {
			e.Errorf("the role is no part of %s: %v", name, role.Labels)
		}
	}
}

// testCertificates: the status has the time until which each certificate in the cluster is valid that the operator renews.
func testCertificates(e *env, b *v1beta1.Bundle) {
	e.Helper()
	want := map[string]time.Time{}
	add := func(name string, data []byte) {
		e.Helper()
		block, _ := pem.Decode(data)
		if block == nil {
			e.Fatalf("%s: no certificate", name)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			e.Fatal(err)
		}
		want[name] = cert.NotAfter
	}
	for _, namespace := range []string{"kube-system", operatorbundle.DefaultNamespace} {
		secrets, err := e.client.CoreV1().Secrets(namespace).List(e.Context(), metav1.ListOptions{})
		if err != nil {
			e.Fatal(err)
		}
		for _, s := range secrets.Items {
			add(s.Name, s.Data[corev1.TLSCertKey])
			if s.Name == operatorbundle.WebhookSecret {
				add(s.Name+"-ca", s.Data["ca.crt"])
			}
		}
	}
	if len(want) != 6 {
		e.Errorf("%d certificates are in the cluster, want those of the webhook, the gateway and the tunnel's API, and their CAs", len(want))
	}
	for _, c := range b.Status.Certificates {
		if !c.NotAfter.Time.Equal(want[c.Name]) {
			e.Errorf("%s is valid until %v, the status says %v", c.Name, want[c.Name], c.NotAfter)
		}
		delete(want, c.Name)
	}
	if len(want) > 0 {
		e.Errorf("the status lacks %v", want)
	}
}
