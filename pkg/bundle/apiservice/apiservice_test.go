// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

func request() Request {
	return Request{Group: "example.com", Version: "v1beta1", Namespace: "apis", Service: "my-api"}.Defaulted()
}

func issue(t *testing.T, r Request) (ca, serving pki.KeyPair) {
	t.Helper()
	cfg := pki.FromBundle(&v1alpha1.Bundle{PKI: v1alpha1.PKI{Algorithm: v1alpha1.KeyECDSAP256}})
	ca, err := pki.NewCA(cfg, "my-api", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if serving, err = r.Issue(cfg, ca, time.Now()); err != nil {
		t.Fatal(err)
	}
	return ca, serving
}

// TestObjects: the objects name each other rightly. The right to read the front proxy's CA is a RoleBinding in
// kube-system for an account of the server's namespace, and the APIService is last.
// It observes AGG-22, AGG-40, AGG-41, AGG-42, AGG-43, EXT-04, EXT-05, EXT-06 and EXT-13 of docs/requirements.md.
// It also observes OLD-92 and OLD-95 of docs/requirements.md.
func TestObjects(t *testing.T) {
	r := request()
	ca, serving := issue(t, r)
	objects, err := r.Objects(ca.CertPEM(), serving)
	if err != nil {
		t.Fatal(err)
	}
	reader, ok := objects[2].(*rbacv1.RoleBinding)
	if !ok || reader.Namespace != "kube-system" || reader.RoleRef.Kind != "Role" || reader.Subjects[0].Namespace != "apis" || reader.Subjects[0].Name != "my-api" {
		t.Errorf("reader: %+v", objects[2])
	}
	secret, ok := objects[3].(*corev1.Secret)
	if !ok || secret.Type != corev1.SecretTypeTLS {
		t.Fatalf("secret: %+v", objects[3])
	}
	pair, err := pki.ParseKeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Cert.VerifyHostname("my-api.apis.svc"); err != nil {
		t.Errorf("certificate: %v", err)
	}
	if err := pair.Cert.CheckSignatureFrom(ca.Cert); err != nil {
		t.Errorf("signature of the certificate: %v", err)
	}
	api, ok := objects[len(objects)-1].(*apiregistrationv1.APIService)
	if !ok || api.Name != "v1beta1.example.com" {
		t.Fatalf("APIService: %+v", objects[len(objects)-1])
	}
	want := apiregistrationv1.APIServiceSpec{
		Group: "example.com", Version: "v1beta1", GroupPriorityMinimum: 1000, VersionPriority: 15, CABundle: ca.CertPEM(),
		Service: &apiregistrationv1.ServiceReference{Namespace: "apis", Name: "my-api", Port: ptr.To(int32(443))},
	}
	if diff := cmp.Diff(want, api.Spec); diff != "" {
		t.Errorf("APIService (-want +got):\n%s", diff)
	}
}

// TestRefuses: what kube-apiserver would refuse, or call unavailable, is an error that says why. AGG-42: without a namespace or a
// name of the Service there is nothing to call.
// It observes AGG-41, AGG-42, AGG-43, AGG-44, EXT-05 and EXT-14 of docs/requirements.md.
// It also observes OLD-91 of docs/requirements.md.
func TestRefuses(t *testing.T) {
	for want, change := range map[string]func(*Request){
		"must have a dot":            func(r *Request) { r.Group = "apps" },
		`group "A.b"`:                func(r *Request) { r.Group = "A.b" },
		`version "1"`:                func(r *Request) { r.Version = "1" },
		`namespace ""`:               func(r *Request) { r.Namespace = "" },
		`namespace "my.apis"`:        func(r *Request) { r.Namespace = "my.apis" },
		`service ""`:                 func(r *Request) { r.Service = "" },
		`service "my.api"`:           func(r *Request) { r.Service = "my.api" },
		"port 70000 must be between": func(r *Request) { r.Port = 70000 },
		"group priority 20001 must be between 1 and 20000": func(r *Request) { r.GroupPriority = 20001 },
		"version priority -1 must be between 1 and 1000":   func(r *Request) { r.VersionPriority = -1 },
	} {
		r := request()
		change(&r)
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	r := request()
	ca, serving := issue(t, r)
	foreign, _ := issue(t, r)
	if _, err := r.Objects(foreign.CertPEM(), serving); err == nil || !strings.Contains(err.Error(), "not signed by a CA of the bundle") {
		t.Errorf("a foreign CA: %v", err)
	}
	if _, err := r.Objects([]byte("LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="), serving); err == nil || !strings.Contains(err.Error(), "without base64") {
		t.Errorf("base64: %v", err)
	}
	r.Namespace = "other"
	if _, err := r.Objects(ca.CertPEM(), serving); err == nil || !strings.Contains(err.Error(), "my-api.other.svc") {
		t.Errorf("a certificate for another name: %v", err)
	}
}
