// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/certs"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

const (
	servingCert = "/etc/kubernetes/pki/apiserver.crt"
	servingKey  = "/etc/kubernetes/pki/apiserver.key"
)

// TestReinstallAfterNewKey covers kubeadm reissuing kube-apiserver's certificate
// with another key. The certificate that a later uninstallation restores belongs
// to the new key.
func TestReinstallAfterNewKey(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	install(t, root)
	n := newNode(testOptions(root).defaulted())
	ca, err := n.certs().Authority("", "")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.FromBundle(nil), certs.ServerRequest("konnectivity-server.kube-system.svc", "kube-apiserver"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := pair.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	put(t, h, servingKey, string(key))
	put(t, h, servingCert, string(pair.CertPEM()))
	o := testOptions(root)
	o.Bundle = &v1alpha1.Bundle{PKI: newBundle().PKI, Konnectivity: v1alpha1.Konnectivity{ServerHost: "other.example.com"}}
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	uninstall(t, root)
	got, err := h.Read(servingCert)
	if err != nil || string(got) != string(pair.CertPEM()) {
		t.Errorf("the certificate is not that of before the second installation: %v", err)
	}
	if _, err := pki.ParseKeyPair(got, key); err != nil {
		t.Errorf("certificate and key: %v", err)
	}
}

// TestFailedReinstallKeepsBackup checks that a second run over an edited manifest,
// if it fails, keeps the backup from before the first run.
func TestFailedReinstallKeepsBackup(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	install(t, root)
	data, err := h.Read(apiServerFile)
	if err != nil {
		t.Fatal(err)
	}
	replaceIn(t, h, apiServerFile, "    - --allow-privileged=true\n", "    - --allow-privileged=true\n    - --v=4\n")
	o := failingOptions(root, func() {})
	o.Bundle = &v1alpha1.Bundle{PKI: newBundle().PKI, Konnectivity: v1alpha1.Konnectivity{
		Transport: v1alpha1.Transport{UDS: &v1alpha1.UDSTransport{Path: "/run/konnectivity/server.socket"}}}}
	if _, err := Install(t.Context(), o); !errors.Is(err, ErrRolledBack) {
		t.Fatal(err)
	}
	state, err := newNode(testOptions(root).defaulted()).readState()
	if err != nil {
		t.Fatal(err)
	}
	want, err := nodefs.Host{Root: pristine}.Read(apiServerFile)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Read(state.File(apiServerFile).Backup); err != nil || string(got) != string(want) {
		t.Errorf("the copy from before the first installation is gone: %v", err)
	}
	put(t, h, apiServerFile, string(data))
	uninstall(t, root)
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}

// TestUninstallFromBrokenControlPlane checks that Uninstall removes the tunnel
// although kube-apiserver is not ready, even if it is not ready without the tunnel
// either.
func TestUninstallFromBrokenControlPlane(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	install(t, root)
	o := testOptions(root)
	broken := errors.New("connection refused")
	o.ready = func() error { return broken }
	o.waits = func(_ context.Context, p *kubelet.Program) error {
		if p.Name == apiServer {
			return broken
		}
		return nil
	}
	if _, err := Install(t.Context(), o); !errors.Is(err, ErrPreflight) {
		t.Errorf("install: %v, want ErrPreflight", err)
	}
	if _, err := Uninstall(t.Context(), o); err != nil {
		t.Error(err)
	}
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}

// TestResumeWithOtherFiles checks that a killed run is completed only if the
// request names the same files.
func TestResumeWithOtherFiles(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/server.conf"
	o := testOptions(pristine)
	o.ServerKubeconfig = file
	seen := map[string]bool{newNode(testOptions(pristine).defaulted()).desired(): true}
	for _, text := range []string{"one", "two"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if d := newNode(o.defaulted()).desired(); seen[d] {
			t.Errorf("--server-kubeconfig with %q is taken for what was asked for before", text)
		} else {
			seen[d] = true
		}
	}
}

// TestRenewRefuses covers a kubeconfig that is a symbolic link, and an unknown
// --restart.
func TestRenewRefuses(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	install(t, root)
	if _, err := Renew(t.Context(), RenewOptions{Options: testOptions(root), Restart: "bogus"}); !errors.Is(err, ErrPreflight) || !strings.Contains(err.Error(), "bogus") {
		t.Errorf("--restart bogus: %v", err)
	}
	target := h.Path(v1alpha1.DefaultServerKubeconfig)
	if err := errors.Join(os.Rename(target, target+".real"), os.Symlink(target+".real", target)); err != nil {
		t.Fatal(err)
	}
	if _, err := Renew(t.Context(), RenewOptions{Options: testOptions(root)}); !errors.Is(err, ErrPreflight) {
		t.Errorf("symbolic link: %v, want ErrPreflight", err)
	}
}
