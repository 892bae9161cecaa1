// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/x509"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/certs"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// tcpBundle uses HTTPConnect over TCP, and a certificate of the server's own.
func tcpBundle() *v1alpha1.Bundle {
	const dir = "/etc/kubernetes/pki/konnectivity/"
	b := &v1alpha1.Bundle{PKI: newBundle().PKI, Konnectivity: v1alpha1.Konnectivity{
		ProxyProtocol: v1alpha1.ProxyHTTPConnect,
		Transport: v1alpha1.Transport{TCP: &v1alpha1.TCPTransport{
			URL: "https://127.0.0.1:8131", ClientCert: dir + "client.crt", ClientKey: dir + "client.key",
			ClientCA: dir + "client-ca.crt", CABundle: "/etc/kubernetes/pki/ca.crt", TLSServerName: "konnectivity-server.kube-system.svc",
		}},
		Server: v1alpha1.KonnectivityServer{CertFile: dir + "server.crt", KeyFile: dir + "server.key"},
	}}
	return b.Defaulted()
}

func renew(t *testing.T, o RenewOptions) Renewal {
	t.Helper()
	r, err := Renew(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func readCerts(t *testing.T, h nodefs.Host, p string) []*x509.Certificate {
	t.Helper()
	data, err := h.Read(p)
	if err != nil {
		t.Fatal(err)
	}
	certs, err := pki.ParseCerts(data)
	if err != nil {
		t.Fatal(err)
	}
	return certs
}

// TestRenew checks that a renewal writes the kubeconfig in place, as the Pod has it mounted
// as a single file, and keeps its mode and API server. Afterwards the state records the new
// files, so that uninstalling removes them.
// It observes KON-24 of docs/requirements.md.
func TestRenew(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	install(t, root)
	const file = v1alpha1.DefaultServerKubeconfig
	before, err := os.Stat(h.Path(file))
	if err != nil {
		t.Fatal(err)
	}
	old, err := h.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	o := RenewOptions{Options: testOptions(root)}
	if r := renew(t, RenewOptions{Options: testOptions(root), Before: WarnBefore}); r.Changed {
		t.Errorf("nothing expires within %s, but %v was renewed", WarnBefore, r.Files)
	}
	r := renew(t, o)
	if !r.Changed || r.Restarted || len(r.Files) != 1 || !strings.Contains(strings.Join(r.Notes, ""), "kubeadm certs renew") {
		t.Errorf("%+v; want the kubeconfig renewed, our server not restarted, and apiserver.crt left to kubeadm", r)
	}
	after, err := os.Stat(h.Path(file))
	if err != nil || !os.SameFile(before, after) || after.Mode() != 0o600 {
		t.Errorf("the kubeconfig is another file or mode: %v, %v", after, err)
	}
	renewed, err := h.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	was, server, err := certs.Identity(old)
	if err != nil {
		t.Fatal(err)
	}
	is, sameServer, err := certs.Identity(renewed)
	if err != nil || sameServer != server || is.SerialNumber.Cmp(was.SerialNumber) == 0 || is.Subject.CommonName != was.Subject.CommonName {
		t.Errorf("renewed: %v for %s at %s", err, is.Subject, sameServer)
	}
	if r := install(t, root); r.Changed {
		t.Errorf("after the renewal an installation changed %v", r.Files)
	}
	uninstall(t, root)
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}

// TestRenewWhileCARotates checks that the kubeconfig follows ca.crt, also when a timer
// starts the renewal. While ca.crt has both CAs, the kubeconfig trusts both, and the CA
// whose key is on the node issues its certificate. Then it trusts the new CA alone. The
// command reports what is left to do.
func TestRenewWhileCARotates(t *testing.T) {
	root, other := testNode(t), anotherNode(t)
	install(t, root)
	h, fresh := nodefs.Host{Root: root}, map[string]string{}
	for _, name := range []string{"ca.crt", "ca.key"} {
		data, err := nodefs.Host{Root: other}.Read("/etc/kubernetes/pki/" + name)
		if err != nil {
			t.Fatal(err)
		}
		fresh[name] = string(data)
	}
	old, err := h.Read("/etc/kubernetes/pki/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	timer := RenewOptions{Options: testOptions(root), Before: WarnBefore}
	put(t, h, "/etc/kubernetes/pki/ca.key", fresh["ca.key"])
	for _, step := range []struct {
		ca   string
		cas  int
		note bool
	}{{string(old) + fresh["ca.crt"], 2, true}, {fresh["ca.crt"], 1, false}} {
		put(t, h, "/etc/kubernetes/pki/ca.crt", step.ca)
		r := renew(t, timer)
		if !r.Changed || r.Restarted || strings.Contains(strings.Join(r.Notes, "\n"), "is being rotated") != step.note {
			t.Errorf("%d CAs: %+v", step.cas, r)
		}
		data, err := h.Read(v1alpha1.DefaultServerKubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		cert, _, err := certs.Identity(data)
		if err != nil || len(certs.Keys(certs.Trust(data))) != step.cas || certs.VerifyIssuer([]byte(fresh["ca.crt"]), cert, x509.ExtKeyUsageClientAuth) != nil {
			t.Errorf("%d CAs: %v, the kubeconfig trusts %d", step.cas, err, len(certs.Keys(certs.Trust(data))))
		}
		if again := renew(t, timer); again.Changed {
			t.Errorf("%d CAs: the next run renewed %v", step.cas, again.Files)
		}
	}
}

// TestRenewTCP checks that both CAs are in the CA bundle until the old one expires, so that
// the server accepts kube-apiserver's old certificate until kube-apiserver restarts, and
// the new one from then on.
func TestRenewTCP(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h, b := nodefs.Host{Root: root}, tcpBundle()
	options := func() Options {
		o := testOptions(root)
		o.Bundle = b
		return o
	}
	if _, err := Install(t.Context(), options()); err != nil {
		t.Fatal(err)
	}
	tcp := b.Konnectivity.Transport.TCP
	old := readCerts(t, h, tcp.ClientCert)[0]
	r := renew(t, RenewOptions{Options: options()})
	if len(r.Files) != 6 || r.Restarted {
		t.Errorf("%+v; want six files renewed without a restart", r)
	}
	ca, err := h.Read(tcp.ClientCA)
	if err != nil {
		t.Fatal(err)
	}
	for name, cert := range map[string]*x509.Certificate{"old": old, "new": readCerts(t, h, tcp.ClientCert)[0]} {
		if err := certs.VerifyIssuer(ca, cert, x509.ExtKeyUsageClientAuth); err != nil {
			t.Errorf("the %s client certificate is refused: %v", name, err)
		}
	}
	later := RenewOptions{Options: options()}
	later.Now = func() time.Time { return old.NotAfter.AddDate(10, 0, 0) }
	later.Before = 0
	if _, err := Renew(t.Context(), later); !errors.Is(err, pki.ErrExpired) {
		t.Errorf("%v, want ErrExpired: the cluster's CA has expired by then", err)
	}
	for _, c := range Certificates(options(), WarnBefore) {
		if c.State != CertGood {
			t.Errorf("%s is %s: %s", c.Path, c.State, c.Problem)
		}
	}
	if _, err := Uninstall(t.Context(), options()); err != nil {
		t.Fatal(err)
	}
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}

// ownClientCert replaces kube-apiserver's client certificate files by a certificate that
// the user made.
func ownClientCert(t *testing.T, h nodefs.Host, o *Options, name string) {
	t.Helper()
	cfg, tcp := pki.FromBundle(o.Bundle), o.Bundle.Konnectivity.Transport.TCP
	ca, err := pki.NewCA(cfg, "our-ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(cfg, pki.Request{CommonName: name, Usages: pki.ClientAuth}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := pair.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	for file, data := range map[string][]byte{tcp.ClientCA: ca.CertPEM(), tcp.ClientCert: pair.CertPEM(), tcp.ClientKey: key} {
		put(t, h, file, string(data))
	}
}

// TestOwnClientName checks that the server accepts a client certificate that the user made
// under the name in the bundle, and that an issued or reissued one has that name, too.
func TestOwnClientName(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		root := testNode(t)
		o := testOptions(root)
		o.Bundle = tcpBundle()
		tcp := o.Bundle.Konnectivity.Transport.TCP
		tcp.ClientNames = []string{"our-apiserver", "another"}
		if own {
			ownClientCert(t, nodefs.Host{Root: root}, &o, "another")
		}
		if _, err := Install(t.Context(), o); err != nil {
			t.Fatalf("own certificate %v: %v", own, err)
		}
		renew(t, RenewOptions{Options: o})
		if name := readCerts(t, nodefs.Host{Root: root}, tcp.ClientCert)[0].Subject.CommonName; name != "our-apiserver" {
			t.Errorf("own certificate %v: the renewed one has the name %q", own, name)
		}
	}
}

// TestRenewRestartsForeignImages: upstream's proxy-server reads its files once, so it is
// restarted. If it does not become ready again, the old files are restored.
func TestRenewRestartsForeignImages(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	o := testOptions(root)
	o.Bundle = &v1alpha1.Bundle{PKI: newBundle().PKI, Konnectivity: v1alpha1.Konnectivity{
		Server: v1alpha1.KonnectivityServer{Image: "registry.k8s.io/kas-network-proxy/proxy-server:v0.34.0"}}}
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, root)
	waits := 0
	o.waits = func(context.Context, *kubelet.Program) error {
		waits++
		if waits == 1 {
			return errors.New("no answer")
		}
		return nil
	}
	if _, err := Renew(t.Context(), RenewOptions{Options: o}); !errors.Is(err, ErrRolledBack) {
		t.Errorf("%v, want ErrRolledBack", err)
	}
	sameTrees(t, before, snapshot(t, root))
	r := renew(t, RenewOptions{Options: o})
	manifest, err := nodefs.Host{Root: root}.Read(manifests.ServerFile(v1alpha1.New()))
	if err != nil || !r.Restarted || !strings.Contains(string(manifest), restartedAt) {
		t.Errorf("%+v, %v\n%s", r, err, manifest)
	}
	o.waits = testOptions(root).waits
	if _, err := Uninstall(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}

// TestDryRunShowsNames checks that the dry run shows what changes in a reissued
// certificate, its names, and that the key stays. It shows nothing of the kubeconfig.
func TestDryRunShowsNames(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	diffs, err := PlanInstall(t.Context(), testOptions(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range diffs {
		switch {
		case strings.HasSuffix(d.Path, "apiserver.crt"):
			changed := 0
			for line := range strings.SplitSeq(d.Diff, "\n") {
				if strings.HasPrefix(line, "+ ") || strings.HasPrefix(line, "- ") {
					changed++
				}
			}
			if changed != 1 || !strings.Contains(d.Diff, "+  name konnectivity-server.kube-system.svc") {
				t.Errorf("want one new name, got\n%s", d.Diff)
			}
		case d.Path == v1alpha1.DefaultServerKubeconfig && (!d.Secret || d.Diff != ""):
			t.Errorf("the kubeconfig is shown: %s", d.Diff)
		case !d.Secret && strings.Contains(d.Diff, "PRIVATE KEY"):
			t.Errorf("%s shows a key", d.Path)
		}
	}
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}

// TestStages installs the server first, then kube-apiserver's part, then another bundle
// over both. The manifest keeps nothing of the earlier bundle, and uninstalling restores
// the original node.
func TestStages(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	const manifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	plain, err := h.Read(manifest)
	if err != nil {
		t.Fatal(err)
	}
	o := testOptions(root)
	o.ServerOnly = true
	if r, err := Install(t.Context(), o); err != nil || !r.Changed {
		t.Fatalf("server only: %+v, %v", r, err)
	}
	if now, err := h.Read(manifest); err != nil || string(now) != string(plain) {
		t.Errorf("server only: kube-apiserver's manifest was changed (%v)", err)
	}
	if r, err := Install(t.Context(), o); err != nil || r.Changed {
		t.Errorf("server only, again: %+v, %v", r, err)
	}
	if r := install(t, root); len(r.Files) != 1 || r.Files[0] != manifest {
		t.Errorf("the rest changed %v, want %s alone", r.Files, manifest)
	}
	other := testOptions(root)
	other.Bundle = &v1alpha1.Bundle{PKI: newBundle().PKI, Konnectivity: v1alpha1.Konnectivity{
		Transport: v1alpha1.Transport{UDS: &v1alpha1.UDSTransport{Path: "/run/konnectivity/server.socket"}}}}
	if _, err := Install(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	now, err := h.Read(manifest)
	if err != nil || !strings.Contains(string(now), "path: /run/konnectivity\n") || strings.Contains(string(now), "/etc/kubernetes/konnectivity-server\n") {
		t.Errorf("%v\n%s", err, now)
	}
	if _, err := Uninstall(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}
