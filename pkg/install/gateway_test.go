// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"bytes"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// testGateway: install makes the gateway's certificate, keeps it while it is good, renews it in time
// and for other names with the same CA, keeps the CA before in the trust after a change, and
// uninstall leaves no Secret.
func testGateway(e env) {
	t := e.t
	load := func(config string) *v1alpha1.Bundle {
		b, err := bundle.Load([]byte(bundletest.File("pki: {algorithm: ECDSA-P256}\n" + config)))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	apply := func(b *v1alpha1.Bundle, now time.Time) {
		t.Helper()
		out, err := bundle.Render(b)
		if err != nil {
			t.Fatal(err)
		}
		secrets, err := install.GatewaySecrets(t.Context(), e.cfg, b, now)
		if err != nil {
			t.Fatal(err)
		}
		var objects []component.Object
		for _, o := range append(secrets, out.Objects...) {
			if _, workload := o.(*appsv1.DaemonSet); !workload {
				objects = append(objects, o)
			}
		}
		if _, err := install.Apply(t.Context(), e.cfg, objects, install.Options{}.Quick()); err != nil {
			t.Fatal(err)
		}
	}
	read := func() *corev1.Secret {
		t.Helper()
		s, err := e.client.CoreV1().Secrets("kube-system").Get(t.Context(), v1alpha1.DefaultGatewaySecret, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	now := time.Now()
	apply(load("gateway: {enabled: true}"), now)
	first := read()
	apply(load("gateway: {enabled: true}"), now.Add(time.Hour))
	if again := read(); again.ResourceVersion != first.ResourceVersion {
		t.Error("a second run changes the certificate")
	}
	apply(load("gateway: {enabled: true, hosts: [gw.example.org]}"), now)
	named := read()
	cert, err := pki.ParseCert(named.Data[corev1.TLSCertKey])
	if err != nil || cert.VerifyHostname("gw.example.org") != nil || !bytes.Equal(named.Data[component.CAKey], first.Data[component.CAKey]) {
		t.Errorf("with another host: %v, names %v", err, cert.DNSNames)
	}
	apply(load("gateway: {enabled: true, hosts: [gw.example.org]}"), now.Add(7000*time.Hour))
	renewed := read()
	if bytes.Equal(renewed.Data[corev1.TLSCertKey], named.Data[corev1.TLSCertKey]) || !bytes.Equal(renewed.Data[component.CAKey], first.Data[component.CAKey]) {
		t.Error("a certificate with less than a third of its time is not renewed, or has another CA")
	}
	apply(load("gateway: {enabled: true}"), now.Add(80000*time.Hour)) // the CA has less time than a certificate
	if trust := read().Data[component.CAKey]; !bytes.HasSuffix(trust, first.Data[component.CAKey]) || len(trust) < len(first.Data[component.CAKey])*3/2 {
		t.Errorf("trust after a new CA:\n%s", trust)
	}
	apply(load("gateway: {enabled: true, certificateSecret: mine}"), now)
	list, err := e.client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=fairlead-gateway"})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("with a certificate of the user's: %d Secrets, %v", len(list.Items), err)
	}
	apply(load("gateway: {enabled: true}"), now)
	if _, err := install.Uninstall(t.Context(), e.cfg, install.UninstallOptions{}.Quick()); err != nil {
		t.Fatal(err)
	}
	list, err = e.client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=fairlead-gateway"})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("after uninstall: %d Secrets, %v", len(list.Items), err)
	}
}
