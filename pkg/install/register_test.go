// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// tunnelAPI installs a bundle with the tunnel's API server alone.
type tunnelAPI struct{ env }

func (a tunnelAPI) load(config string) *v1alpha1.Bundle {
	a.t.Helper()
	b, err := bundle.Load([]byte(bundletest.File("pki: {algorithm: ECDSA-P256}\nscheduler: {enabled: false}\n" + config)))
	if err != nil {
		a.t.Fatal(err)
	}
	return b
}

func (a tunnelAPI) install(b *v1alpha1.Bundle, now time.Time, limit time.Duration) (*install.Result, error) {
	a.t.Helper()
	objects, err := install.Objects(a.t.Context(), a.cfg, b, now)
	if err != nil {
		a.t.Fatal(err)
	}
	return install.Apply(a.t.Context(), a.cfg, objects, install.Options{Timeout: limit}.Quick())
}

func (a tunnelAPI) mustInstall(b *v1alpha1.Bundle, now time.Time) *install.Result {
	a.t.Helper()
	r, err := a.install(b, now, time.Minute)
	if err != nil {
		a.t.Fatal(err)
	}
	return r
}

// registered returns the APIService; nil if there is none.
func (a tunnelAPI) registered() *unstructured.Unstructured {
	a.t.Helper()
	services := a.dyn.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	o, err := services.Get(a.t.Context(), "v1alpha1.tunnel.fairlead.dev", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		a.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return o
}

// trusted returns the CAs in the APIService, after it has verified the certificate in the Secret by them.
func (a tunnelAPI) trusted(now time.Time) (ca, certificate []byte) {
	a.t.Helper()
	text, _, _ := unstructured.NestedString(a.registered().Object, "spec", "caBundle")
	ca, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		a.t.Fatal(err)
	}
	s, err := a.client.CoreV1().Secrets("kube-system").Get(a.t.Context(), v1alpha1.DefaultTunnelAPISecret, metav1.GetOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := pki.ParseCert(s.Data[corev1.TLSCertKey])
	if err != nil {
		a.t.Fatal(err)
	}
	cas, err := pki.ParseCerts(ca)
	if err != nil {
		a.t.Fatal(err)
	}
	if cert.VerifyHostname("fairlead-apiserver.kube-system.svc") != nil || cert.CheckSignatureFrom(cas[0]) != nil || pki.VerifyTime(cert, now) != nil {
		a.t.Errorf("kube-apiserver would refuse the certificate: names %v, until %v", cert.DNSNames, cert.NotAfter)
	}
	return ca, s.Data[corev1.TLSCertKey]
}

// backend adds an endpoint to the Service, which is ready or not.
func (a tunnelAPI) backend(ready bool) {
	a.t.Helper()
	slices := a.client.DiscoveryV1().EndpointSlices("kube-system")
	_ = slices.Delete(a.t.Context(), v1alpha1.TunnelAPIName, metav1.DeleteOptions{})
	_, err := slices.Create(a.t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: v1alpha1.TunnelAPIName, Labels: map[string]string{discoveryv1.LabelServiceName: v1alpha1.TunnelAPIName}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To(tunnelapi.PortAPI), Port: ptr.To(int32(6443))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = slices.Delete(context.Background(), v1alpha1.TunnelAPIName, metav1.DeleteOptions{}) })
}

// testRegistration: the APIService is created last, and only when a server is ready, with the CA of the server's certificate;
// both are kept while they are good and renewed in time, with the CA before still trusted. It is deleted first, by a bundle
// without it and by uninstall, which leave no Secret.
func testRegistration(e env) {
	t, a, now := e.t, tunnelAPI{e}, time.Now()
	on, off := a.load("tunnelAPI: {enabled: true}"), a.load("")
	a.backend(false)
	err := e.limited("Service kube-system/fairlead-apiserver has no ready endpoint", func(limit time.Duration) error {
		_, err := a.install(on, now, limit)
		return err
	})
	if err == nil || a.registered() != nil {
		t.Fatalf("without a ready server: %v, registered %v", err, a.registered())
	}
	if _, err := e.client.AppsV1().Deployments("kube-system").Get(t.Context(), v1alpha1.TunnelAPIName, metav1.GetOptions{}); err != nil {
		t.Errorf("nothing starts the server: %v", err)
	}
	a.backend(true)
	first := a.mustInstall(on, now)
	if kinds := kindsOf(first); kinds[len(kinds)-1] != "APIService" {
		t.Errorf("applied in the order %v", kinds)
	}
	ca, cert := a.trusted(now)
	a.backend(false) // it exists: a server that is not ready blocks no renewal
	if again := a.mustInstall(on, now.Add(time.Hour)); again.Count(install.Unchanged) != len(again.Objects) {
		t.Errorf("a second run changes %+v", again.Objects)
	}
	later := now.Add(7000 * time.Hour)
	a.mustInstall(on, later)
	sameCA, renewed := a.trusted(later)
	if bytes.Equal(cert, renewed) || !bytes.Equal(ca, sameCA) {
		t.Error("a certificate with less than a third of its time is not renewed, or the CA changes")
	}
	later = now.Add(80000 * time.Hour) // the CA has less time than a certificate
	a.mustInstall(on, later)
	if both, _ := a.trusted(later); !bytes.HasSuffix(both, ca) || len(both) <= len(ca) {
		t.Errorf("trust after a new CA:\n%s", both)
	}
	gone := slices.DeleteFunc(a.mustInstall(off, later).Objects, func(o install.ObjectResult) bool { return o.Action != install.Deleted })
	if len(gone) < 10 || gone[0].Kind != "APIService" || a.registered() != nil {
		t.Errorf("a bundle without it deletes %+v", gone)
	}
	a.backend(true)
	a.mustInstall(on, later)
	if kinds := kindsOf(e.uninstall()); kinds[0] != "APIService" {
		t.Errorf("uninstall deletes in the order %v", kinds)
	}
	e.nothingOfTunnelAPI()
}

// nothingOfTunnelAPI looks for objects that uninstall has left.
func (e env) nothingOfTunnelAPI() {
	e.t.Helper()
	labeled := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + v1alpha1.TunnelAPIName}
	for _, gvr := range append(slices.Clone(kinds),
		schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "flowschemas"},
		schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "prioritylevelconfigurations"},
		schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}) {
		list, err := e.dyn.Resource(gvr).List(e.t.Context(), labeled)
		if err != nil || len(list.Items) != 0 {
			e.t.Errorf("%s after uninstall: %d, %v", gvr.Resource, len(list.Items), err)
		}
	}
}
