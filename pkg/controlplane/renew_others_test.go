// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

const pkiDir = "/etc/kubernetes/pki/"

// clusterClientCert writes kube-apiserver's client certificate, issued by the cluster's CA.
func clusterClientCert(t *testing.T, root string, tcp *v1alpha1.TCPTransport) {
	t.Helper()
	ca, err := newNode(testOptions(root).defaulted()).certs().Authority("", "")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.FromBundle(nil), pki.Request{CommonName: tcp.ClientNames[0], Usages: pki.ClientAuth}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := pair.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	put(t, nodefs.Host{Root: root}, tcp.ClientCert, string(pair.CertPEM()))
	put(t, nodefs.Host{Root: root}, tcp.ClientKey, string(key))
}

// TestRenewLeavesFilesOfKubeadm covers bundles that use kubeadm's certificates, keys and CAs
// for one part of the tunnel: a renewal replaces none of them, and says who renews the
// certificate.
func TestRenewLeavesFilesOfKubeadm(t *testing.T) {
	t.Parallel()
	const byHand = "by hand"
	for name, tc := range map[string]struct {
		change  func(t *testing.T, root string, b *v1alpha1.Bundle)
		cert    string
		renewal string
	}{
		"certificate to API server": {func(_ *testing.T, _ string, b *v1alpha1.Bundle) {
			tcp := b.Konnectivity.Transport.TCP
			tcp.ServerCert, tcp.ServerKey, tcp.TLSServerName = pkiDir+"apiserver.crt", pkiDir+"apiserver.key", "kubernetes"
		}, pkiDir + "apiserver.crt", "kubeadm certs renew apiserver"},
		"CA of the client certificate": {func(t *testing.T, root string, b *v1alpha1.Bundle) {
			b.Konnectivity.Transport.TCP.ClientCA = pkiDir + "ca.crt"
			clusterClientCert(t, root, b.Konnectivity.Transport.TCP)
		}, pkiDir + "konnectivity/client.crt", byHand},
		"client certificate": {func(_ *testing.T, _ string, b *v1alpha1.Bundle) {
			tcp := b.Konnectivity.Transport.TCP
			tcp.ClientCA, tcp.ClientCert, tcp.ClientKey = pkiDir+"ca.crt", pkiDir+"apiserver-kubelet-client.crt", pkiDir+"apiserver-kubelet-client.key"
			tcp.ClientNames = []string{"kube-apiserver-kubelet-client"}
		}, pkiDir + "apiserver-kubelet-client.crt", "kubeadm certs renew apiserver-kubelet-client"},
		"key": {func(t *testing.T, root string, b *v1alpha1.Bundle) {
			k := &b.Konnectivity
			k.ServerHost, k.Server.KeyFile = "kubernetes.default.svc", pkiDir+"apiserver.key"
			k.Transport = v1alpha1.Transport{UDS: v1alpha1.New().Konnectivity.Transport.UDS}
			copied(pkiDir+"apiserver.crt", k.Server.CertFile)(t, nodefs.Host{Root: root}, nil)
		}, pkiDir + "konnectivity/server.crt", byHand},
	} {
		t.Run(name, func(t *testing.T) {
			root := testNode(t)
			o := withBundle(root, tcpBundle())
			tc.change(t, root, o.Bundle)
			mustInstall(t, o)
			before := ofKubeadm(t, root)
			r := renew(t, RenewOptions{Options: o})
			sameTrees(t, before, ofKubeadm(t, root))
			if !r.Changed || slices.Contains(r.Files, tc.cert) || !strings.Contains(strings.Join(r.Notes, "\n"), tc.cert+" is ") {
				t.Errorf("%s is to stay, and to be named: %+v", tc.cert, r)
			}
			for _, c := range Certificates(o, WarnBefore) {
				if c.State != CertGood || c.Path == tc.cert && c.Renewal != tc.renewal {
					t.Errorf("%+v, want it renewed by %q", c, tc.renewal)
				}
			}
		})
	}
}

// ofKubeadm returns kubeadm's certificates and keys.
func ofKubeadm(t *testing.T, root string) map[string]string {
	t.Helper()
	files, made := snapshot(t, root), snapshot(t, pristine)
	for name := range files {
		if _, ok := made[name]; !ok || !strings.HasPrefix(name, pkiDir) || strings.HasSuffix(name, "/") {
			delete(files, name)
		}
	}
	if len(files) < 10 {
		t.Fatalf("only %d files of kubeadm", len(files))
	}
	return files
}
