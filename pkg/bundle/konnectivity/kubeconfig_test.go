// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"crypto/x509"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestServerKubeconfig: the kubeconfig has the user, cluster, context and
// client certificate that the Kubernetes documentation describes. The user is
// system:konnectivity-server.
// It observes KON-20 and KON-21 of docs/requirements.md.
// It also observes OLD-27 of docs/requirements.md.
func TestServerKubeconfig(t *testing.T) {
	b := v1alpha1.New()
	now := time.Now()
	ca, err := pki.NewCA(pki.FromBundle(b), "kubernetes", now)
	if err != nil {
		t.Fatal(err)
	}
	data, err := konnectivity.ServerKubeconfig(b, ca, "https://192.0.2.1:6443", now)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	user, cluster := config.AuthInfos["system:konnectivity-server"], config.Clusters["kubernetes"]
	if user == nil || cluster == nil || config.CurrentContext != "system:konnectivity-server@kubernetes" {
		t.Fatalf("kubeconfig %s", data)
	}
	if cluster.Server != "https://192.0.2.1:6443" || string(cluster.CertificateAuthorityData) != string(ca.CertPEM()) {
		t.Errorf("cluster %+v", cluster)
	}
	cert, err := pki.ParseCert(user.ClientCertificateData)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if got := cert.NotAfter.Sub(now).Round(time.Hour); got != 9000*time.Hour {
		t.Errorf("valid for %v, want 375 days", got)
	}
	if cert.Subject.CommonName != "system:konnectivity-server" || len(cert.Subject.Organization) > 0 {
		t.Errorf("subject %v", cert.Subject)
	}
}
