// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	kubeadmvalidation "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/validation"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/certs"
	kubeadmconfig "k8s.io/kubernetes/cmd/kubeadm/app/util/config"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
)

// issueAPIServer lets kubeadm issue the API server's certificate as "kubeadm init
// phase certs apiserver" does, and checks the name against it as an agent does.
func issueAPIServer(t *testing.T, sans []string, name string) error {
	t.Helper()
	init, err := kubeadmconfig.DefaultedStaticInitConfiguration()
	if err != nil {
		t.Fatal(err)
	}
	init.CertificatesDir, init.APIServer.CertSANs = t.TempDir(), sans
	ca := certs.KubeadmCertRootCA()
	if _, _, err := ca.CreateAsCA(init); err != nil {
		t.Fatal(err)
	}
	if err := certs.CreateCertAndKeyFilesWithCA(certs.KubeadmCertAPIServer(), ca, init); err != nil {
		t.Fatal(err)
	}
	cert, err := pkiutil.TryLoadCertFromDisk(init.CertificatesDir, "apiserver")
	if err != nil {
		t.Fatal(err)
	}
	return cert.VerifyHostname(name)
}

// TestPatchesComeWithCertificateName: kubeadm patches for kube-apiserver cannot
// add a name to its certificate, so the bundle renders a separate file with the
// name. With it kubeadm issues a certificate that agents accept: the server shows
// agents the API server's certificate, and --proxy-server-host must match one of
// its SANs.
func TestPatchesComeWithCertificateName(t *testing.T) {
	b := load(t, "")
	host := b.Konnectivity.ServerHost
	if issueAPIServer(t, nil, host) == nil {
		t.Fatalf("%s is in every certificate: the test proves nothing", host)
	}
	config := kubeadmReads(t, kubeadmFile(t, b, bundle.KubeadmSANsPath))
	if errs := kubeadmvalidation.ValidateAPIServer(&config.APIServer, nil); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
	if err := issueAPIServer(t, config.APIServer.CertSANs, host); err != nil {
		t.Errorf("agents would refuse the certificate: %v", err)
	}
	if diff := cmp.Diff([]string{host}, config.APIServer.CertSANs); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if n := len(config.APIServer.ExtraArgs) + len(config.APIServer.ExtraVolumes); n > 0 {
		t.Errorf("%d flags and volumes, which the patches set already", n)
	}
}

// TestNoCertificateNameForAnotherCertificate: kubeadm does not issue the
// certificate that the server shows agents in this case.
func TestNoCertificateNameForAnotherCertificate(t *testing.T) {
	b := load(t, "konnectivity: {server: {certFile: /etc/kubernetes/pki/tunnel.crt, keyFile: /etc/kubernetes/pki/tunnel.key}}")
	for _, f := range render(t, b).KubeadmFiles {
		if filepath.Base(f.Path) == bundle.KubeadmSANsPath {
			t.Errorf("%s:\n%s", f.Path, f.Data)
		}
	}
}
