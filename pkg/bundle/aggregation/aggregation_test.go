package aggregation_test

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	apiserveroptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/aggregation"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestFlags: AGG-03 to AGG-07, the request header flags by the API server's own
// options.
func TestFlags(t *testing.T) {
	b := v1alpha1.New()
	b.Aggregation.AllowedNames = []string{"front-proxy-client", "other"}
	options := apiserveroptions.RequestHeaderAuthenticationOptions{}
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	options.AddFlags(flags)
	cert := flags.String("proxy-client-cert-file", "", "")
	key := flags.String("proxy-client-key-file", "", "")
	if err := flags.Parse(component.Args(aggregation.APIServerFlags(b, "/pki"))); err != nil {
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

// TestAggregatorRouting: AGG-09.
func TestAggregatorRouting(t *testing.T) {
	b := v1alpha1.New()
	all := func() string {
		return strings.Join(component.Args(aggregation.APIServerFlags(b, "/pki")), " ")
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

// TestFrontProxy: AGG-01, AGG-05, AGG-31. The certificate has an allowed name and
// is signed by a CA that is not the cluster's.
func TestFrontProxy(t *testing.T) {
	b := v1alpha1.New()
	b.PKI.Algorithm = v1alpha1.KeyECDSAP256
	now := time.Now()
	proxy, err := aggregation.NewFrontProxy(b, now)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := pki.NewCA(pki.FromBundle(b), "kubernetes", now)
	if err != nil {
		t.Fatal(err)
	}
	if got := proxy.Client.Cert.Subject.CommonName; got != b.Aggregation.AllowedNames[0] {
		t.Errorf("common name %q is not allowed", got)
	}
	verify := func(ca pki.KeyPair) error {
		roots := x509.NewCertPool()
		roots.AddCert(ca.Cert)
		_, err := proxy.Client.Cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		return err
	}
	if err := verify(proxy.CA); err != nil {
		t.Error(err)
	}
	if err := verify(cluster); err == nil {
		t.Error("the cluster's CA vouches for the front proxy")
	}
	if err := pki.VerifyDistinct(cluster.Cert, proxy.CA.Cert); err != nil {
		t.Error(err)
	}
}
