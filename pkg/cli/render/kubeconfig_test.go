// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// caFiles makes a cluster CA whose life begins at now.
func caFiles(t *testing.T, now time.Time) (cert, key string) {
	t.Helper()
	ca, err := pki.NewCA(pki.Config{Algorithm: v1alpha1.KeyECDSAP256, CAValidity: time.Hour}, "kubernetes", now)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := ca.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return write(t, dir+"/ca.crt", string(ca.CertPEM())), write(t, dir+"/ca.key", string(keyPEM))
}

// TestServerKubeconfig: the kubeconfig has the documented contents, embeds the certificate
// and the key, leaves no separate key file behind, and has mode 0600.
// It observes KON-21, KON-22 and KON-23 of docs/requirements.md.
// It also observes OLD-28 of docs/requirements.md.
func TestServerKubeconfig(t *testing.T) {
	cert, key := caFiles(t, time.Now())
	with, without := t.TempDir(), t.TempDir()
	if _, err := run(t, "", "--output-dir", with, "--ca-cert", cert, "--ca-key", key, "--server", "https://192.0.2.1:6443"); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, "", "--output-dir", without); err != nil {
		t.Fatal(err)
	}
	const name = "host/etc/kubernetes/konnectivity-server.conf"
	info, err := os.Stat(filepath.Join(with, name))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode().Perm())
	}
	config, err := clientcmd.LoadFromFile(filepath.Join(with, name))
	if err != nil {
		t.Fatal(err)
	}
	if got := config.CurrentContext; got != "system:konnectivity-server@kubernetes" {
		t.Errorf("context %q", got)
	}
	if got := config.Clusters["kubernetes"].Server; got != "https://192.0.2.1:6443" {
		t.Errorf("server %q", got)
	}
	a, b := tree(t, with), tree(t, without)
	delete(a, name)
	delete(a, ".fairlead-render")
	delete(b, ".fairlead-render")
	if diff := cmp.Diff(b, a); diff != "" {
		t.Errorf("the CA changed more than the kubeconfig:\n%s", diff)
	}
	index := tree(t, with)[".fairlead-render"]
	if k, m := strings.Index(index, name), strings.Index(index, "manifests/konnectivity-server.yaml"); k < 0 || m < k {
		t.Errorf("kubeconfig is not written before the static Pod:\n%s", index)
	}
}

// TestStaticScheduler: the static Pod's files are written, the kubeconfig with mode 0600
// and before the manifest, and its certificate is for the user that every binding names.
// It observes SCHED-26 of docs/requirements.md.
func TestStaticScheduler(t *testing.T) {
	cert, key := caFiles(t, time.Now())
	dir := t.TempDir()
	bundle := bundletest.File("scheduler: {form: StaticPod}\nkonnectivity: {enabled: false}")
	if _, err := run(t, bundle, "-f", "-", "--output-dir", dir, "--ca-cert", cert, "--ca-key", key, "--server", "https://192.0.2.1:6443"); err != nil {
		t.Fatal(err)
	}
	const name = "host/etc/kubernetes/my-scheduler.conf"
	if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, error %v, want mode 0600", info, err)
	}
	config, err := clientcmd.LoadFromFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].ClientCertificateData)
	client, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	files, bindings := tree(t, dir), 0
	for file, text := range files {
		if strings.Contains(file, "binding") && strings.Contains(text, "kind: User\n  name: "+client.Subject.CommonName+"\n") {
			bindings++
		}
		if strings.Contains(text, "kind: ServiceAccount") || strings.Contains(text, "serviceAccountName") {
			t.Errorf("%s names a ServiceAccount, which the Pod cannot use", file)
		}
	}
	if bindings != 4 {
		t.Errorf("%d of 4 bindings are of user %s", bindings, client.Subject.CommonName)
	}
	index := files[".fairlead-render"]
	k, c, m := strings.Index(index, name), strings.Index(index, "my-scheduler/my-scheduler-config.yaml"), strings.Index(index, "manifests/my-scheduler.yaml")
	if k < 0 || c < 0 || m < k || m < c {
		t.Errorf("kubeconfig and configuration are not written before the static Pod:\n%s", index)
	}
}

func TestWrongCA(t *testing.T) {
	now := time.Now()
	cert, key := caFiles(t, now)
	expiredCert, expiredKey := caFiles(t, now.Add(-48*time.Hour))
	_, otherKey := caFiles(t, now)
	for name, tc := range map[string]struct{ cert, key, want string }{
		"expired":     {expiredCert, expiredKey, "certificate has expired"},
		"other key":   {cert, otherKey, "private key does not belong to the certificate"},
		"swapped":     {key, cert, "holds no certificate"},
		"not PEM":     {write(t, t.TempDir()+"/x", "x"), key, "not valid PEM"},
		"key missing": {cert, "/nonexistent", "--ca-key: open /nonexistent"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			_, err := run(t, "", "--output-dir", dir, "--ca-cert", tc.cert, "--ca-key", tc.key, "--server", "https://a")
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line with %q", err, tc.want)
			}
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s was made", dir)
			}
		})
	}
}
