// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/apiclient"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// badNode spoils a node or options, and has what the error says.
type badNode struct {
	spoil func(*testing.T, nodefs.Host, *Options)
	want  []string
}

// badCA is the cluster's CA, without the ending of its files.
const badCA = "/etc/kubernetes/pki/ca"

func editManifest(from, to string) func(*testing.T, nodefs.Host, *Options) {
	return func(t *testing.T, h nodefs.Host, _ *Options) { replaceIn(t, h, apiServerFile, from, to) }
}

func writeText(name, text string) func(*testing.T, nodefs.Host, *Options) {
	return func(t *testing.T, h nodefs.Host, _ *Options) { put(t, h, name, text) }
}

var badNodes = map[string]badNode{
	"not root": {func(_ *testing.T, _ nodefs.Host, o *Options) { o.user = func() int { return 1000 } }, []string{"only root", "sudo"}},
	"not a control plane node": {func(t *testing.T, h nodefs.Host, _ *Options) { remove(t, h, apiServerFile) },
		[]string{apiServerFile, "not a kubeadm control plane node"}},
	"foreign egress selector": {editManifest("    - --etcd-servers", "    - --egress-selector-config-file=/x.yaml\n    - --etcd-servers"),
		[]string{"--egress-selector-config-file=/x.yaml", "remove that flag, or set the bundle's field to it"}},
	"unparsable manifest": {writeText(apiServerFile, "a: ["), []string{apiServerFile, "not YAML"}},
	"no such container": {func(t *testing.T, h nodefs.Host, _ *Options) {
		replaceIn(t, h, apiServerFile, "    name: kube-apiserver\n", "    name: api\n")
	}, []string{apiServerFile, "none of its containers is named kube-apiserver", "api"}},
	"too old":          {editManifest("kube-apiserver:v1.36.3", "kube-apiserver:v1.30.2"), []string{"v1.30.2", "v1.31", "upgrade the cluster first"}},
	"too new":          {editManifest("kube-apiserver:v1.36.3", "kube-apiserver:v1.99.0"), []string{"v1.99.0", "use a newer fairlead"}},
	"another mount":    {editManifest("  volumes:\n", "  volumes:\n  - name: konnectivity-uds\n    emptyDir: {}\n"), []string{"volume konnectivity-uds", "rename that volume"}},
	"a copy beside it": {copied(apiServerFile, "/etc/kubernetes/manifests/kube-apiserver.yaml.bak"), []string{"kube-apiserver.yaml.bak", "move it out"}},
	"foreign egress file": {writeText("/etc/kubernetes/konnectivity/egress-selector-configuration.yaml", "kind: Other\n"),
		[]string{"egress-selector-configuration.yaml exists, fairlead did not write it", "move it away, or set controlPlane.egressSelectorFile"}},
	"foreign server": {writeText(serverFile, "apiVersion: v1\nkind: Pod\nmetadata: {name: konnectivity-server}\n"),
		[]string{serverFile + " exists, fairlead did not write it", "take it out"}},
	"foreign kubeconfig":     {writeText(v1alpha1.DefaultServerKubeconfig, "kind: Config\n"), []string{v1alpha1.DefaultServerKubeconfig + " exists, fairlead did not write it", "move it away"}},
	"a directory in the way": {func(t *testing.T, h nodefs.Host, _ *Options) { put(t, h, v1alpha1.DefaultServerKubeconfig+"/file", "") }, []string{v1alpha1.DefaultServerKubeconfig, "move it away"}},
	"CA without its key":     {func(t *testing.T, h nodefs.Host, _ *Options) { remove(t, h, badCA+".key") }, []string{badCA + ".key", "--ca-cert and --ca-key", "--server-kubeconfig"}},
	"CA with another key":    {copied("/etc/kubernetes/pki/front-proxy-ca.key", badCA+".key"), []string{badCA + ".key", "private key does not belong"}},
	"expired CA": {func(_ *testing.T, _ nodefs.Host, o *Options) {
		o.Now = func() time.Time { return time.Now().AddDate(11, 0, 0) }
	}, []string{badCA + ".crt", "expired on", "renew the CA first"}},
	"no CA":                   {func(t *testing.T, h nodefs.Host, _ *Options) { remove(t, h, badCA+".crt") }, []string{badCA + ".crt", "controlPlane.pkiDir"}},
	"kubelet reads elsewhere": {writeText("/var/lib/kubelet/config.yaml", "staticPodPath: /somewhere\n"), []string{"/somewhere", "set controlPlane.manifestsDir"}},
	"nothing to install": {func(_ *testing.T, _ nodefs.Host, o *Options) {
		o.Bundle = newBundle()
		*o.Bundle.Konnectivity.Enabled = false
	}, []string{"konnectivity.enabled is false"}},
	"name not in TLS": {func(_ *testing.T, _ nodefs.Host, o *Options) {
		o.Bundle = tcpBundle()
		o.Bundle.Konnectivity.Transport.TCP.ServerCert = "/etc/kubernetes/pki/apiserver.crt"
		o.Bundle.Konnectivity.Transport.TCP.ServerKey = "/etc/kubernetes/pki/apiserver.key"
		o.Bundle.Konnectivity.Server.CertFile, o.Bundle.Konnectivity.Server.KeyFile = o.Bundle.Konnectivity.Transport.TCP.ServerCert, o.Bundle.Konnectivity.Transport.TCP.ServerKey
		o.Bundle.Konnectivity.Transport.TCP.TLSServerName = "other.example.com"
	}, []string{"other.example.com is not a name of", "set tlsServerName"}},
	"own client certificate of another name": {func(t *testing.T, h nodefs.Host, o *Options) {
		o.Bundle = tcpBundle()
		ownClientCert(t, h, o, "our-apiserver")
	}, []string{`"our-apiserver"`, "set konnectivity.transport.tcp.clientNames"}},
	"half of a pair": {func(t *testing.T, h nodefs.Host, o *Options) {
		o.Bundle = tcpBundle()
		put(t, h, o.Bundle.Konnectivity.Server.CertFile, "x")
	}, []string{"only one of", "restore the other one", "move this one away"}},
	"a kubeconfig of another user": {func(_ *testing.T, h nodefs.Host, o *Options) { o.ServerKubeconfig = h.Path(apiclient.AdminConf) },
		[]string{"--server-kubeconfig", "kubernetes-admin", konnectivity.ServerUser}},
}

// TestBadInput checks that one line reports what is wrong with a node or a
// bundle and what to do, and that the node does not change by a single byte.
// It observes KON-02 of docs/requirements.md.
func TestBadInput(t *testing.T) {
	t.Parallel()
	for name, tc := range badNodes {
		t.Run(name, func(t *testing.T) {
			root := testNode(t)
			o := testOptions(root)
			tc.spoil(t, nodefs.Host{Root: root}, &o)
			before := snapshot(t, root)
			for _, run := range []func() error{
				func() error { _, err := Install(t.Context(), o); return err },
				func() error { _, err := PlanInstall(t.Context(), o); return err },
			} {
				err := run()
				if !errors.Is(err, ErrPreflight) {
					t.Fatalf("%v, want ErrPreflight", err)
				}
				for _, want := range tc.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q is missing in: %v", want, err)
					}
				}
				sameTrees(t, before, snapshot(t, root))
			}
		})
	}
}

func put(t *testing.T, h nodefs.Host, name, text string) {
	t.Helper()
	mkdir(t, h, filepath.Dir(name))
	if err := os.WriteFile(h.Path(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, h nodefs.Host, name string) {
	t.Helper()
	if err := os.MkdirAll(h.Path(name), 0o755); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, h nodefs.Host, name string) {
	t.Helper()
	if err := os.Remove(h.Path(name)); err != nil {
		t.Fatal(err)
	}
}

func replaceIn(t *testing.T, h nodefs.Host, name, from, to string) {
	t.Helper()
	data, err := h.Read(name)
	if err != nil || !strings.Contains(string(data), from) {
		t.Fatalf("%q is not in %s: %v", from, name, err)
	}
	put(t, h, name, strings.Replace(string(data), from, to, 1))
}

func copied(from, to string) func(*testing.T, nodefs.Host, *Options) {
	return func(t *testing.T, h nodefs.Host, _ *Options) {
		data, err := h.Read(from)
		if err != nil {
			t.Fatal(err)
		}
		put(t, h, to, string(data))
	}
}

// TestPortTaken checks that the line names the port, the process that listens on
// it, and the field to set.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	root := testNode(t)
	o := testOptions(root)
	o.Bundle = newBundle()
	taken := int32(l.Addr().(*net.TCPAddr).Port)
	o.Bundle.Konnectivity.Server.HealthPort = taken
	_, err = Install(t.Context(), o)
	for _, want := range []string{"port " + strconv.Itoa(int(taken)), "process " + strconv.Itoa(os.Getpid()), "konnectivity.server.healthPort"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}

// TestEqualFilesStay checks that a file with the same content, however it is
// formatted, is used and stays after an uninstallation. An empty kubeconfig is
// replaced: the kubelet creates one for a mount without a file.
func TestEqualFilesStay(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	plan, err := PlanInstall(t.Context(), testOptions(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range plan {
		if d.Path != v1alpha1Egress {
			continue
		}
		var text strings.Builder
		for line := range strings.SplitSeq(d.Diff, "\n") {
			if s, added := strings.CutPrefix(line, "+"); added && !strings.HasPrefix(s, "++ ") {
				text.WriteString(s + "\n")
			}
		}
		put(t, h, d.Path, "# by hand\n"+text.String())
	}
	put(t, h, v1alpha1.DefaultServerKubeconfig, "")
	before := snapshot(t, root)
	r := install(t, root)
	for _, f := range r.Files {
		if f == v1alpha1Egress {
			t.Error("an equal file was replaced")
		}
	}
	if info, err := os.Stat(h.Path(v1alpha1.DefaultServerKubeconfig)); err != nil || info.Size() == 0 {
		t.Errorf("the empty kubeconfig is still there: %v", err)
	}
	uninstall(t, root)
	sameTrees(t, before, snapshot(t, root))
}

// TestReadyMadeKubeconfig covers a node without the CA's key. It gets the
// kubeconfig from elsewhere; its certificate already contains the name that
// agents dial.
func TestReadyMadeKubeconfig(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	n := newNode(testOptions(root).defaulted())
	ca, err := n.certs().Authority("", "")
	if err != nil {
		t.Fatal(err)
	}
	data, err := konnectivity.ServerKubeconfig(nil, ca.KeyPair, "https://192.0.2.1:6443", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ready.conf")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	remove(t, h, "/etc/kubernetes/pki/ca.key")
	o := testOptions(root)
	o.ServerKubeconfig = file
	o.Bundle = &v1alpha1.Bundle{PKI: newBundle().PKI, Konnectivity: v1alpha1.Konnectivity{ServerHost: "kubernetes.default.svc"}}
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Read(v1alpha1.DefaultServerKubeconfig); err != nil || string(got) != string(data) {
		t.Errorf("another kubeconfig: %v", err)
	}
}

// TestTwoCAs covers a rotation of the cluster's CA: ca.crt has both CAs, the one
// that belongs to the key signs, and the server trusts both.
func TestTwoCAs(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	other, err := pki.NewCA(pki.FromBundle(nil), "kubernetes", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	now, err := h.Read("/etc/kubernetes/pki/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	put(t, h, "/etc/kubernetes/pki/ca.crt", string(other.CertPEM())+string(now))
	install(t, root)
	data, err := h.Read(v1alpha1.DefaultServerKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := newNode(testOptions(root).defaulted()).certs().CheckServerKubeconfig(data); err != nil {
		t.Error(err)
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	certs, err := pki.ParseCerts(config.Clusters["kubernetes"].CertificateAuthorityData)
	if err != nil || len(certs) != 2 {
		t.Errorf("the kubeconfig trusts %d CAs, want both: %v", len(certs), err)
	}
}
