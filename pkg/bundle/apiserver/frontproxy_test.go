// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	apiserveroptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestFlags: the flags for the front proxy certificate and for the request headers
// are complete, and the API server's own options accept them.
// It observes AGG-03, AGG-04, AGG-05, AGG-06 and AGG-07 of docs/requirements.md.
// It also observes OLD-93 and OLD-94 of docs/requirements.md.
func TestFlags(t *testing.T) {
	b := v1alpha1.New()
	b.Aggregation.AllowedNames = []string{"front-proxy-client", "other"}
	options := apiserveroptions.RequestHeaderAuthenticationOptions{}
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	options.AddFlags(flags)
	flags.ParseErrorsAllowlist.UnknownFlags = true // those that are not about the front proxy
	cert := flags.String("proxy-client-cert-file", "", "")
	key := flags.String("proxy-client-key-file", "", "")
	if err := flags.Parse(component.Args(apiserver.Flags(b, apiserver.Server{FrontProxyDir: "/pki"}))); err != nil {
		t.Fatal(err)
	}
	if errs := options.Validate(); len(errs) > 0 {
		t.Error(errs)
	}
	want := apiserveroptions.RequestHeaderAuthenticationOptions{
		ClientCAFile: "/pki/front-proxy-ca.crt", UsernameHeaders: []string{"X-Remote-User"}, UIDHeaders: []string{"X-Remote-Uid"},
		GroupHeaders: []string{"X-Remote-Group"}, ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
		AllowedNames: []string{"front-proxy-client", "other"},
	}
	if diff := cmp.Diff(want, options); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if *cert != "/pki/front-proxy-client.crt" || *key != "/pki/front-proxy-client.key" {
		t.Errorf("proxy client %s, %s", *cert, *key)
	}
}

// TestAggregatorRouting: enableAggregatorRouting sets --enable-aggregator-routing,
// which is needed if kube-proxy does not run on the API server's host.
// It observes AGG-09 of docs/requirements.md.
func TestAggregatorRouting(t *testing.T) {
	b := v1alpha1.New()
	all := func() string {
		return strings.Join(component.Args(apiserver.Flags(b, apiserver.Server{FrontProxyDir: "/pki"})), " ")
	}
	const flag = "--enable-aggregator-routing=true"
	if strings.Contains(all(), "aggregator-routing") {
		t.Error("set by default")
	}
	b.Aggregation.EnableAggregatorRouting = ptr.To(true)
	if !strings.Contains(all(), flag) {
		t.Errorf("%q lacks %s", all(), flag)
	}
}

// TestClientRequest: the front proxy certificate has an allowed name and is a valid
// client certificate of the CA that issued it, and not of the cluster's CA.
// It observes AGG-01, AGG-04 and AGG-32 of docs/requirements.md.
func TestClientRequest(t *testing.T) {
	b := v1alpha1.New()
	b.PKI.Algorithm = v1alpha1.KeyECDSAP256
	b.Aggregation.AllowedNames = []string{"the-proxy", "front-proxy-client"}
	now := time.Now()
	authority := func(name string) pki.KeyPair {
		ca, err := pki.NewCA(pki.FromBundle(b), name, now)
		if err != nil {
			t.Fatal(err)
		}
		return ca
	}
	cluster, own := authority("kubernetes"), authority(apiserver.FrontProxyCAName)
	client, err := own.Issue(pki.FromBundle(b), apiserver.FrontProxyRequest(b), now)
	if err != nil {
		t.Fatal(err)
	}
	if got := client.Cert.Subject.CommonName; got != "the-proxy" {
		t.Errorf("common name %q, want the first allowed one", got)
	}
	verify := func(ca pki.KeyPair) error {
		roots := x509.NewCertPool()
		roots.AddCert(ca.Cert)
		_, err := client.Cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		return err
	}
	if err := verify(own); err != nil {
		t.Error(err)
	}
	if err := verify(cluster); err == nil {
		t.Error("the cluster's CA vouches for the front proxy")
	}
}
