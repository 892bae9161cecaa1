// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/crds"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	config "github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// foreignDefinition is another project's definition with the name of TunnelPools.
func foreignDefinition(change func(*apiextensionsv1.CustomResourceDefinitionSpec)) *apiextensionsv1.CustomResourceDefinition {
	d := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "tunnelpools.fairlead.dev"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "fairlead.dev", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "tunnelpools", Kind: "TunnelPool"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1beta1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
	change(&d.Spec)
	return d
}

// TestForeignDefinitions: the operator writes nothing into a definition that is not what it can use, says what differs
// and what to do, and creates no other. The same holds for a definition that takes the place of its own later: the
// webhook and its CA still come into the others, and a new CA is taken as published.
func TestForeignDefinitions(t *testing.T) {
	testutil.Full(t, "many definitions of others")
	daemontest.Beside(t)
	testutil.Limit(t, 5*time.Minute) // with eight busy loops
	cp := daemontest.TakeControlPlane(t)
	cfg, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Namespace: "kube-system", WebhookURL: "https://127.0.0.1:1/convert"}
	cas, err := (&certificates{client: cp.Client, namespace: "kube-system", names: []string{"127.0.0.1"}, now: time.Now}).ensure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDefinitions(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("no rights", func(t *testing.T) { testNoRights(t, cp, cfg, o, cas) })
	gone := func(name string) {
		t.Helper()
		_ = d.client.Delete(t.Context(), name, metav1.DeleteOptions{})
		testutil.Eventually(t, time.Minute, func() error {
			if _, err := d.client.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return errors.New("it is there")
			}
			return nil
		})
	}
	for want, change := range map[string]func(*apiextensionsv1.CustomResourceDefinitionSpec){
		"kind Pond": func(s *apiextensionsv1.CustomResourceDefinitionSpec) { s.Names.Kind = "Pond" },
		"scope is Cluster": func(s *apiextensionsv1.CustomResourceDefinitionSpec) {
			s.Scope = apiextensionsv1.ClusterScoped
		},
		"declares none of the fields": func(*apiextensionsv1.CustomResourceDefinitionSpec) {},
		"not serve version v1beta1":   func(s *apiextensionsv1.CustomResourceDefinitionSpec) { s.Versions[0].Name = "v1" },
	} {
		before, err := d.client.Create(t.Context(), foreignDefinition(change), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for name, write := range map[string]func() error{
			"install": func() error { return d.install(t.Context(), cas) },
			"publish": func() error { return d.publish(t.Context(), cas) },
		} {
			err := write()
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "fairlead install --operator") {
				t.Errorf("%s, %s: %v", want, name, err)
			}
		}
		after, err := d.client.Get(t.Context(), before.Name, metav1.GetOptions{})
		if err != nil || after.Generation != before.Generation {
			t.Errorf("%s: the foreign definition was changed: %+v, %v", want, after.Spec.Conversion, err)
		}
		if _, err := d.client.Get(t.Context(), "bundles.fairlead.dev", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: another definition was created: %v", want, err)
		}
		gone(before.Name)
	}
	if err := d.install(t.Context(), cas); err != nil {
		t.Errorf("when nothing is foreign: %v", err)
	}
	gone("tunnelpools.fairlead.dev")
	if _, err := d.client.Create(t.Context(), foreignDefinition(func(s *apiextensionsv1.CustomResourceDefinitionSpec) { s.Versions[0].Name = "v1" }), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewCA(pki.Config{Algorithm: config.KeyECDSAP256, Validity: certValidity, CAValidity: caValidity}, "another", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if trusted, err := d.trust(t.Context(), ca.CertPEM()); trusted || err != nil {
		t.Errorf("a CA that is nowhere: %v, %v", trusted, err)
	}
	if err := d.publish(t.Context(), ca.CertPEM()); err == nil || !strings.Contains(err.Error(), "not serve version v1beta1") {
		t.Errorf("publish beside a foreign definition: %v", err)
	}
	if bundles, err := d.client.Get(t.Context(), "bundles.fairlead.dev", metav1.GetOptions{}); err != nil || !bytes.Equal(bundles.Spec.Conversion.Webhook.ClientConfig.CABundle, ca.CertPEM()) {
		t.Errorf("a foreign definition keeps a new CA from the others: %v, %v", bundles.Spec.Conversion, err)
	}
	if trusted, err := d.trust(t.Context(), ca.CertPEM()); !trusted || err != nil {
		t.Errorf("a foreign definition keeps a new CA from being served: %v, %v", trusted, err)
	}
}

// testNoRights: a program that may not read, create or change definitions says what gives it the rights.
func testNoRights(t *testing.T, cp *daemontest.ControlPlane, cfg *rest.Config, o Options, cas []byte) {
	accounts := cp.Client.CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "powerless"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := accounts.CreateToken(t.Context(), "powerless", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cfg = rest.AnonymousClientConfig(cfg)
	cfg.BearerToken = token.Status.Token
	d, err := newDefinitions(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	all, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func() error{
		"install": func() error { return d.install(t.Context(), cas) },
		"publish": func() error { return d.publish(t.Context(), cas) },
	} {
		if err := write(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), all[0].Name) || !strings.Contains(err.Error(), installIt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
