// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	configMaps   = "/api/v1/namespaces/default/configmaps"
	dry          = "?dryRun=All"
)

// testDryRun proves that a dry run runs all stages and stores nothing, in all kinds of writes, that it needs the same permissions,
// and what it asks of admission.
// It observes API-40, API-41, API-41a and API-42 of docs/requirements.md.
func (e *env) testDryRun(t *testing.T) {
	d := e.tabs(t, 1540)
	e.post(t, d, "v1", "a", map[string]any{"spec": map[string]any{"image": "a"}})
	all := collection(d, "v1")
	path, prefix := all+"/a", d.Spec.Group+"/crontabs/"
	before := e.etcd(t, prefix)
	object := get[map[string]any](t, e, path, jsonType)
	object["spec"] = map[string]any{"image": "b"}
	put, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	body := func(name, spec string) string {
		return fmt.Sprintf(`{"apiVersion": "%s/v1", "kind": "CronTab", "metadata": {"name": %q}, "spec": %s}`, d.Spec.Group, name, spec)
	}
	for _, w := range []struct {
		method, path, kind, body string
		code                     int
		says                     string
	}{
		{http.MethodPost, all, jsonType, body("b", `{"image": "a"}`), http.StatusCreated, `"replicas":1`},
		{http.MethodPost, all, jsonType, body("b", `{"image": 1}`), http.StatusUnprocessableEntity, "spec.image"},
		{http.MethodPost, all, jsonType, body("a", `{}`), http.StatusConflict, "already exists"},
		{http.MethodPut, path, jsonType, string(put), http.StatusOK, `"image":"b"`},
		{http.MethodPatch, path, mergeType, `{"spec": {"image": "c"}}`, http.StatusOK, `"image":"c"`},
		{http.MethodPatch, path + "?fieldManager=one&force=true", applyType, body("a", `{"image": "d"}`), http.StatusOK, `"image":"d"`},
		{http.MethodDelete, path, jsonType, "", http.StatusOK, ""},
		{http.MethodDelete, all, jsonType, "", http.StatusOK, ""},
	} {
		join := "?"
		if strings.Contains(w.path, "?") {
			join = "&"
		}
		for dryRun, code := range map[string]int{"All": w.code, "x": http.StatusUnprocessableEntity, "": http.StatusUnprocessableEntity} {
			r := e.raw(t, w.method, w.path+join+"dryRun="+dryRun, w.kind, jsonType, w.body)
			if r.code != code {
				t.Errorf("%s %s, dry run %s: %d %s", w.method, w.path, dryRun, r.code, r.body)
			}
			if dryRun == "All" {
				has(t, "the answer to "+w.method, r.body, w.says)
			} else {
				has(t, "the answer to "+w.method, r.body, "dryRun", "Unsupported value", "All")
			}
		}
		if diff := gocmp.Diff(before, e.etcd(t, prefix)); diff != "" {
			t.Fatalf("%s %s has stored (-before +after):\n%s", w.method, w.path, diff)
		}
	}
	if r := e.raw(t, http.MethodPost, all, jsonType, jsonType, body("stored", `{}`)); r.code != http.StatusCreated || e.etcd(t, prefix)["stored"] == nil {
		t.Errorf("without dryRun: %d %s", r.code, r.body)
	}
	e.dryRunRights(t, d, body("c", `{}`))
	e.dryRunWebhooks(t, d, body)
	e.dryRunPlugins(t)
}

// as returns the same API server for a user.
func (e *env) as(t *testing.T, user string) *env {
	t.Helper()
	cfg := rest.CopyConfig(e.cfg)
	cfg.Impersonate.UserName = user
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	other := *e
	other.client = client
	return &other
}

// dryRunRights: who may not write may not write in a dry run, and who may, may.
func (e *env) dryRunRights(t *testing.T, d *crd.Definition, body string) {
	t.Helper()
	user := e.as(t, "dry-runner")
	for _, query := range []string{"", dry} {
		if r := user.raw(t, http.MethodPost, collection(d, "v1")+query, jsonType, jsonType, body); r.code != http.StatusForbidden {
			t.Errorf("without permissions, %q: %d %s", query, r.code, r.body)
		}
	}
	name := metav1.ObjectMeta{Name: "dry-runner"}
	role := &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{APIGroups: []string{d.Spec.Group}, Resources: []string{"crontabs"}, Verbs: []string{"create"}}}}
	if _, err := e.Client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "dry-runner"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "dry-runner"}}}
	if _, err := e.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, bound, func() error { // until the API server knows the role
		if r := user.raw(t, http.MethodPost, collection(d, "v1")+dry, jsonType, jsonType, body); r.code != http.StatusCreated {
			return fmt.Errorf("with permissions: %d %s", r.code, r.body)
		}
		return nil
	})
}

// dryRunWebhooks: a webhook has to say that it has no side effects in a dry run, and is told that it is one.
func (e *env) dryRunWebhooks(t *testing.T, d *crd.Definition, body func(name, spec string) string) {
	t.Helper()
	var mu sync.Mutex
	asked := map[string]bool{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		mu.Lock()
		asked[review.Request.Name] = ptr.Deref(review.Request.DryRun, false)
		mu.Unlock()
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	configurations := e.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	configure := func(effects admissionregistrationv1.SideEffectClass) error {
		_, err := configurations.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: d.Name}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: d.Name, AdmissionReviewVersions: []string{"v1"}, SideEffects: &effects,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To(server.URL), CABundle: ca},
			Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"CREATE"},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{d.Spec.Group}, APIVersions: []string{"*"}, Resources: []string{"*"}}}}}}}, metav1.CreateOptions{})
		return err
	}
	for _, effects := range []admissionregistrationv1.SideEffectClass{admissionregistrationv1.SideEffectClassSome, admissionregistrationv1.SideEffectClassUnknown} {
		if err := configure(effects); err == nil || !strings.Contains(err.Error(), "sideEffects") {
			t.Errorf("a webhook with the side effects %s: %v", effects, err)
		}
	}
	if err := configure(admissionregistrationv1.SideEffectClassNoneOnDryRun); err != nil {
		t.Fatal(err)
	}
	n := 0
	daemontest.Eventually(t, bound, func() error { // until the API server calls the webhook
		n++
		name := fmt.Sprintf("n%d", n)
		if r := e.raw(t, http.MethodPost, collection(d, "v1"), jsonType, jsonType, body(name, `{}`)); r.code != http.StatusCreated {
			t.Fatalf("POST: %d %s", r.code, r.body)
		}
		r := e.raw(t, http.MethodPost, collection(d, "v1")+dry, jsonType, jsonType, body(name+"-dry", `{}`))
		mu.Lock()
		defer mu.Unlock()
		isDry, called := asked[name+"-dry"]
		isDryToo, calledToo := asked[name]
		if r.code != http.StatusCreated || !called || !isDry || !calledToo || isDryToo {
			return fmt.Errorf("%d %s: the webhook was asked %v", r.code, r.body, asked)
		}
		return nil
	})
	if err := configurations.Delete(t.Context(), d.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// dryRunPlugins: the plugins that are built in answer as always, and a quota does not count a dry run.
func (e *env) dryRunPlugins(t *testing.T) {
	t.Helper()
	const ns = "dry-run"
	ctx, core := t.Context(), e.Client.CoreV1()
	if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "limits"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("123m")}}}}}
	if _, err := core.LimitRanges(ns).Create(ctx, limits, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	hard := corev1.ResourceList{"count/secrets": resource.MustParse("5")}
	quota, err := core.ResourceQuotas(ns).Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "quota"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// No controller counts here.
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{"count/secrets": resource.MustParse("0")}}
	if _, err := core.ResourceQuotas(ns).UpdateStatus(ctx, quota, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	used := func() string {
		t.Helper()
		q, err := core.ResourceQuotas(ns).Get(ctx, "quota", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := q.Status.Used["count/secrets"]
		return n.String()
	}
	n := 0
	daemontest.Eventually(t, bound, func() error { // until the API server knows the quota
		n++
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d", n)}}
		if _, err := core.Secrets(ns).Create(ctx, secret, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			return err
		}
		if got := used(); got != "0" {
			t.Fatalf("the quota counts %s after a dry run", got)
		}
		if _, err := core.Secrets(ns).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			return err
		}
		if used() != "1" {
			err := core.Secrets(ns).Delete(ctx, secret.Name, metav1.DeleteOptions{})
			return fmt.Errorf("the quota does not count a Secret (%w)", err)
		}
		return nil
	})
	daemontest.Eventually(t, bound, func() error { // until the namespace has its ServiceAccount
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{AutomountServiceAccountToken: ptr.To(false), Containers: []corev1.Container{{Name: "c", Image: "c"}}}}
		out, err := core.Pods(ns).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if cpu := out.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU]; cpu.String() != "123m" {
			return fmt.Errorf("the limit of a Pod in a dry run is %s", cpu.String())
		}
		return nil
	})
	if list, err := core.Pods(ns).List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("the dry run has left Pods: %v, %v", list.Items, err)
	}
}

// testMedia proves which media types the API server reads and writes, for types that are built in and for custom resources, and
// that it still makes tables of the older version.
// It observes API-23, API-25, API-26 and OLD-73 of docs/requirements.md.
func (e *env) testMedia(t *testing.T) {
	d := e.tabs(t, 1550)
	e.post(t, d, "v1", "a", map[string]any{"spec": map[string]any{}})
	custom := collection(d, "v1")
	const fallback = protobufType + ", " + jsonType
	for _, c := range []struct {
		path, accept string
		code         int
		kind         string
	}{
		{configMaps, "*/*", http.StatusOK, jsonType},
		{configMaps, protobufType, http.StatusOK, protobufType},
		{configMaps, fallback, http.StatusOK, protobufType},
		{configMaps, "application/yaml", http.StatusOK, "application/yaml"},
		{configMaps, "application/x-none", http.StatusNotAcceptable, ""},
		{custom, "*/*", http.StatusOK, jsonType},
		{custom, protobufType, http.StatusNotAcceptable, ""},
		{custom, fallback, http.StatusOK, jsonType},
		{custom, "application/yaml", http.StatusOK, "application/yaml"},
		{custom, "application/x-none", http.StatusNotAcceptable, ""},
	} {
		r := e.raw(t, http.MethodGet, c.path, "", c.accept, "")
		if r.code != c.code || c.kind != "" && r.header.Get("Content-Type") != c.kind {
			t.Errorf("GET %s as %s: %d %s", c.path, c.accept, r.code, r.header.Get("Content-Type"))
		}
		if c.kind == protobufType && !bytes.HasPrefix(r.body, []byte("k8s\x00")) {
			t.Errorf("protobuf begins with %q", r.body[:min(4, len(r.body))])
		}
	}

	var proto bytes.Buffer
	err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "proto"}, Data: map[string]string{"a": "b"}}, &proto)
	if err != nil {
		t.Fatal(err)
	}
	yamlBody := func(name string) string {
		return "apiVersion: " + d.Spec.Group + "/v1\nkind: CronTab\nmetadata:\n  name: " + name + "\n"
	}
	for _, c := range []struct {
		path, contentType, body string
		code                    int
	}{
		{configMaps, protobufType, proto.String(), http.StatusCreated},
		{configMaps, "application/yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\n", http.StatusCreated},
		{configMaps, "text/plain", `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plain"}}`, http.StatusUnsupportedMediaType},
		{custom, "application/yaml", yamlBody("yaml"), http.StatusCreated},
		{custom, "text/plain", yamlBody("plain"), http.StatusUnsupportedMediaType},
	} {
		r := e.raw(t, http.MethodPost, c.path, c.contentType, jsonType, c.body)
		if r.code != c.code || r.header.Get("Content-Type") != jsonType {
			t.Errorf("POST %s of %s: %d %s %s", c.path, c.contentType, r.code, r.header.Get("Content-Type"), r.body)
		}
	}
	if data := get[corev1.ConfigMap](t, e, configMaps+"/proto", jsonType).Data; data["a"] != "b" {
		t.Errorf("the object that was sent as protobuf has the data %v", data)
	}
	e.tables(t, custom)
}

// tables: types that are built in and have no columns get Name and Created At, custom resources Name and Age.
func (e *env) tables(t *testing.T, custom string) {
	t.Helper()
	for _, version := range []string{"v1", "v1beta1"} {
		for path, want := range map[string][]string{
			custom: {"Name", "Age"},
			"/apis/rbac.authorization.k8s.io/v1/clusterroles": {"Name", "Created At"},
		} {
			table := get[metav1.Table](t, e, path, "application/json;as=Table;g=meta.k8s.io;v="+version)
			var names []string
			for _, c := range table.ColumnDefinitions {
				names = append(names, c.Name)
			}
			if diff := gocmp.Diff(want, names); diff != "" || table.APIVersion != "meta.k8s.io/"+version || len(table.Rows) == 0 {
				t.Errorf("%s as a table of %s: %s, %d rows, columns (-want +got):\n%s", path, version, table.APIVersion, len(table.Rows), diff)
			}
		}
	}
}

// removed are objects of a definition that are deleted, and ConfigMaps that depend on them.
type removed struct {
	*env
	*crd.Definition
}

// dependent makes an object with the same name as its owner.
func (r removed) dependent(t *testing.T, owner string, finalizers ...string) {
	t.Helper()
	u := get[metav1.PartialObjectMetadata](t, r.env, r.path(owner), jsonType).UID
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: owner, Finalizers: finalizers, OwnerReferences: []metav1.OwnerReference{{
		APIVersion: r.Spec.Group + "/v1", Kind: "CronTab", Name: owner, UID: u, BlockOwnerDeletion: ptr.To(true)}}}}
	if _, err := r.Client.CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (r removed) path(name string) string { return collection(r.Definition, "v1") + "/" + name }

// send deletes an object with options, and wants a status code.
func (r removed) send(t *testing.T, name, options string, code int) reply {
	t.Helper()
	got := r.raw(t, http.MethodDelete, r.path(name), jsonType, jsonType, options)
	if got.code != code {
		t.Errorf("DELETE of %s with %s: %d, want %d: %s", name, options, got.code, code, got.body)
	}
	return got
}

// testRemoval proves the status codes of writes, which conditions a deletion may have, and what becomes of dependents.
// It observes API-30 and OLD-74 of docs/requirements.md.
func (e *env) testRemoval(t *testing.T) {
	r := removed{e, e.owners}
	e.codes(t, r)
	create := func(name string, meta map[string]any) {
		t.Helper()
		if meta == nil {
			meta = map[string]any{}
		}
		meta["name"] = name
		e.post(t, r.Definition, "v1", name, map[string]any{"metadata": meta})
	}
	create("conditions", nil)
	now := get[metav1.PartialObjectMetadata](t, e, r.path("conditions"), jsonType)
	for _, options := range []string{`{"preconditions": {"uid": "another"}}`, `{"preconditions": {"resourceVersion": "1"}}`} {
		has(t, "the answer to "+options, r.send(t, "conditions", options, http.StatusConflict).body, "in the precondition")
	}
	for _, options := range []string{`{"propagationPolicy": "Sometimes"}`, `{"propagationPolicy": "Orphan", "orphanDependents": true}`} {
		r.send(t, "conditions", options, http.StatusUnprocessableEntity)
	}
	e.eventually(t, r.path("conditions"), http.StatusOK)
	r.send(t, "conditions", fmt.Sprintf(`{"preconditions": {"uid": %q, "resourceVersion": %q}}`, now.UID, now.ResourceVersion), http.StatusOK)
	r.send(t, "conditions", "", http.StatusNotFound)

	create("held", map[string]any{"finalizers": []any{"example.org/held"}})
	r.send(t, "held", `{"orphanDependents": false}`, http.StatusAccepted)
	r.send(t, "held", "", http.StatusOK)
	e.merge(t, r.path("held"), `{"metadata": {"finalizers": []}}`)
	e.eventually(t, r.path("held"), http.StatusNotFound)

	for _, name := range []string{"labeled-1", "labeled-2", "unlabeled"} {
		create(name, map[string]any{"labels": map[string]any{"of": strings.SplitN(name, "-", 2)[0]}})
	}
	if got := e.raw(t, http.MethodDelete, collection(r.Definition, "v1")+"?labelSelector=of%3Dlabeled", jsonType, jsonType, ""); got.code != http.StatusOK {
		t.Errorf("deletecollection: %d %s", got.code, got.body)
	}
	if left := get[metav1.PartialObjectMetadataList](t, e, collection(r.Definition, "v1"), jsonType).Items; len(left) != 1 || left[0].Name != "unlabeled" {
		t.Errorf("deletecollection has left %v", left)
	}
	r.propagates(t, create)
}

// codes: 201 for what is new, 200 for what is there.
func (e *env) codes(t *testing.T, r removed) {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion": "%s/v1", "kind": "CronTab", "metadata": {"name": "codes"}}`, r.Spec.Group)
	for _, w := range []struct {
		method, path, kind string
		code               int
	}{
		{http.MethodPost, collection(r.Definition, "v1"), jsonType, http.StatusCreated},
		{http.MethodPost, collection(r.Definition, "v1"), jsonType, http.StatusConflict},
		{http.MethodPatch, r.path("codes"), mergeType, http.StatusOK},
		{http.MethodPatch, r.path("codes") + "?fieldManager=one", applyType, http.StatusOK},
		{http.MethodPatch, r.path("new") + "?fieldManager=one", applyType, http.StatusCreated},
		{http.MethodPatch, r.path("none"), mergeType, http.StatusNotFound},
		{http.MethodDelete, r.path("codes"), jsonType, http.StatusOK},
		{http.MethodDelete, r.path("codes"), jsonType, http.StatusNotFound},
		{http.MethodDelete, r.path("new"), jsonType, http.StatusOK},
	} {
		text := body
		switch {
		case w.method == http.MethodDelete:
			text = ""
		case strings.Contains(w.path, "/new?"):
			text = strings.Replace(body, `"codes"`, `"new"`, 1)
		case w.kind == mergeType:
			text = `{"metadata": {"labels": {"a": "b"}}}`
		}
		if got := e.raw(t, w.method, w.path, w.kind, jsonType, text); got.code != w.code {
			t.Errorf("%s %s: %d, want %d: %s", w.method, w.path, got.code, w.code, got.body)
		}
	}
}

// propagates: the owner goes first, last, or alone.
func (r removed) propagates(t *testing.T, create func(string, map[string]any)) {
	t.Helper()
	const holds = "example.org/holds"
	long := func(path string, code int) { // kube-controller-manager discovers resources again twice a minute
		t.Helper()
		daemontest.Eventually(t, 4*bound, func() error {
			if got := r.raw(t, http.MethodGet, path, "", jsonType, ""); got.code != code {
				return fmt.Errorf("GET %s: %d %s", path, got.code, got.body)
			}
			return nil
		})
	}
	create("orphan", nil)
	r.dependent(t, "orphan")
	r.send(t, "orphan", `{"propagationPolicy": "Orphan"}`, http.StatusOK)
	long(r.path("orphan"), http.StatusNotFound)
	if owners := get[metav1.PartialObjectMetadata](t, r.env, configMaps+"/orphan", jsonType).OwnerReferences; len(owners) > 0 {
		t.Errorf("the orphan has the owners %v", owners)
	}

	create("foreground", nil)
	r.dependent(t, "foreground", holds)
	r.send(t, "foreground", `{"propagationPolicy": "Foreground"}`, http.StatusOK)
	daemontest.Eventually(t, 4*bound, func() error {
		if get[metav1.PartialObjectMetadata](t, r.env, configMaps+"/foreground", jsonType).DeletionTimestamp == nil {
			return fmt.Errorf("the dependent is not deleted")
		}
		return nil
	})
	owner := get[metav1.PartialObjectMetadata](t, r.env, r.path("foreground"), jsonType)
	if owner.DeletionTimestamp == nil || fmt.Sprint(owner.Finalizers) != "["+metav1.FinalizerDeleteDependents+"]" {
		t.Errorf("the owner waits with %v and the finalizers %v", owner.DeletionTimestamp, owner.Finalizers)
	}
	r.merge(t, configMaps+"/foreground", `{"metadata": {"finalizers": []}}`)
	long(r.path("foreground"), http.StatusNotFound)
	long(configMaps+"/foreground", http.StatusNotFound)

	create("background", nil)
	r.dependent(t, "background", holds)
	r.send(t, "background", `{"propagationPolicy": "Background"}`, http.StatusOK)
	r.eventually(t, r.path("background"), http.StatusNotFound)
	if code := r.raw(t, http.MethodGet, configMaps+"/background", "", jsonType, "").code; code != http.StatusOK {
		t.Errorf("the dependent that holds itself is gone: %d", code)
	}
	r.merge(t, configMaps+"/background", `{"metadata": {"finalizers": []}}`)
	long(configMaps+"/background", http.StatusNotFound)
}
