// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/check/incluster"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestKubeletRenewal proves that the renewal of each of kubelet's certificates is one that works for that file.
func TestKubeletRenewal(t *testing.T) {
	for file, want := range map[string]string{
		"kubelet-client-current.pem": "bootstrap kubeconfig",
		"kubelet-server-current.pem": "kubectl get csr",
		"kubelet.crt":                "rm /var/lib/kubelet/pki/kubelet.crt /var/lib/kubelet/pki/kubelet.key",
	} {
		c := &collector{Target: Target{Root: t.TempDir()}}
		dir := filepath.Join(c.Root, "/var/lib/kubelet/pki")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		own := c.ownCertificates(Program{})
		if len(own) != 1 || !strings.Contains(own[0].Renewal, want) || own[0].Rotated != (file != "kubelet.crt") {
			t.Errorf("%s: got %+v, want %q", file, own, want)
		}
	}
}

// TestMountedPaths proves that files of kube-apiserver and etcd are read where their volumes are on the node, also if the containers have them
// elsewhere, and that a path of the image stays.
func TestMountedPaths(t *testing.T) {
	data, err := os.ReadFile(daemontest.Certificate(t).Cert)
	if err != nil {
		t.Fatal(err)
	}
	b := (&v1alpha1.Bundle{}).Defaulted()
	root, err := os.MkdirTemp("", "fl") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	c := &collector{Target: Target{Root: root}, s: &Snapshot{Bundle: b, Names: incluster.NamesOf(b)}}
	put := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	put(b.ControlPlane.ManifestsDir+"/kube-apiserver.yaml", `metadata: {name: kube-apiserver, namespace: kube-system}
spec:
  containers:
  - name: kube-apiserver
    command: [kube-apiserver, --egress-selector-config-file=/etc/egress/file.yaml, --tls-cert-file=/certs/inner/apiserver.crt]
    volumeMounts: [{name: e, mountPath: /etc/egress}, {name: c, mountPath: /certs}, {name: i, mountPath: /certs/inner/, subPath: sub}, {name: s, mountPath: /run/tunnel}]
  volumes:
  - {name: e, hostPath: {path: /opt/egress}}
  - {name: c, hostPath: {path: /opt/wrong}}
  - {name: i, hostPath: {path: /opt/pki}}
  - {name: s, hostPath: {path: /s}}
`)
	put(b.ControlPlane.ManifestsDir+"/etcd.yaml", `metadata: {name: etcd, namespace: kube-system}
spec:
  containers:
  - {name: etcd, command: [etcd, --cert-file=/pki/server.crt], volumeMounts: [{name: p, mountPath: /pki}]}
  volumes: [{name: p, hostPath: {path: /opt/etcd}}]
`)
	put("/opt/egress/file.yaml", strings.ReplaceAll(egressYAML, "SOCKET", "/run/tunnel/t.socket"))
	put("/opt/pki/sub/apiserver.crt", string(data))
	put("/opt/etcd/server.crt", string(data))
	put("/s/t.socket", "")
	host, err := c.hostFacts(t.Context())
	if err != nil || host.Egress.Err != nil || host.EgressFile != "/opt/egress/file.yaml" || host.Egress.Value.Socket != "/s/t.socket" {
		t.Errorf("%+v, %v, %v", host, err, host.Egress.Err)
	}
	if host.Socket.Err != nil || host.Socket.Value.Path != "/s/t.socket" {
		t.Errorf("%+v, %v", host.Socket.Value, host.Socket.Err)
	}
	got := map[string]error{}
	for _, f := range host.Own {
		got[f.Path] = f.Leaf.Err
	}
	for _, file := range []string{"/opt/pki/sub/apiserver.crt", "/opt/etcd/server.crt"} {
		if err, ok := got[file]; !ok || err != nil {
			t.Errorf("%s: %v, in %v", file, err, got)
		}
	}
	if file := OnHost(Program{Pod: &corev1.Pod{}}, "/usr/share/x"); file != "/usr/share/x" {
		t.Errorf("a path of the image: %s", file)
	}
}

// TestControlPlaneCertificates proves that the certificates of etcd and of the kubeconfigs of a control plane that kubeadm made are read from where
// manifests and kubeconfigs say, each with a renewal of its own, that a missing or broken one is an error of its own, and that a user with a token
// and an etcd elsewhere are none.
func TestControlPlaneCertificates(t *testing.T) {
	data, err := os.ReadFile(daemontest.Certificate(t).Cert)
	if err != nil {
		t.Fatal(err)
	}
	b := (&v1alpha1.Bundle{}).Defaulted()
	root := t.TempDir()
	c := &collector{Target: Target{Root: root}, s: &Snapshot{Bundle: b, Names: incluster.NamesOf(b)}}
	put := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	manifest := func(program, args string) {
		put(b.ControlPlane.ManifestsDir+"/"+program+".yaml", "metadata: {name: "+program+", namespace: kube-system}\nspec: {containers: [{name: c, command: ["+program+", "+args+"]}]}\n")
	}
	kubeconfig := func(name, user string) {
		put(name, "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nusers: [{name: u, user: {"+user+"}}]\n")
	}
	if got := append(c.etcdCertificates(), c.kubeconfigCertificates()...); len(got) > 0 {
		t.Errorf("nothing there: %+v", got)
	}
	manifest("etcd", "--cert-file=/pki/etcd/server.crt, --peer-cert-file=/pki/etcd/peer.crt")
	manifest("kube-controller-manager", "--kubeconfig=/etc/kubernetes/controller-manager.conf")
	manifest("kube-scheduler", "--kubeconfig=/elsewhere/scheduler.conf")
	put("/pki/etcd/server.crt", string(data))
	put(b.ControlPlane.PKIDir+"/etcd/healthcheck-client.crt", "no certificate")
	kubeconfig("/etc/kubernetes/controller-manager.conf", "client-certificate-data: "+base64.StdEncoding.EncodeToString(data))
	kubeconfig("/elsewhere/scheduler.conf", "client-certificate: scheduler.crt")
	put("/elsewhere/scheduler.crt", string(data))
	kubeconfig("/etc/kubernetes/admin.conf", "token: abc")
	put("/etc/kubernetes/super-admin.conf", "{")
	want := map[string]struct {
		good    bool
		renewal string
	}{
		"/pki/etcd/server.crt": {true, "renew etcd-server"},
		"/pki/etcd/peer.crt":   {false, "renew etcd-peer"},
		b.ControlPlane.PKIDir + "/etcd/healthcheck-client.crt": {false, "renew etcd-healthcheck-client"},
		"/etc/kubernetes/controller-manager.conf":              {true, "renew controller-manager.conf"},
		"/elsewhere/scheduler.crt":                             {true, "renew scheduler.conf"},
		"/etc/kubernetes/super-admin.conf":                     {false, "renew super-admin.conf"},
	}
	got := append(c.etcdCertificates(), c.kubeconfigCertificates()...)
	for _, f := range got {
		w, ok := want[f.Path]
		if !ok || f.Use == "" || !strings.Contains(f.Renewal, w.renewal) || (f.Leaf.Err == nil) != w.good || w.good && f.Leaf.Value.Subject.CommonName != "test" {
			t.Errorf("%+v, want %+v", f, w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d certificates, want %d", len(got), len(want))
	}
	manifest("kube-apiserver", "--secure-port=6443")
	if host, err := c.hostFacts(t.Context()); err != nil || len(host.Own) != len(want) {
		t.Errorf("the node has %d certificates, want %d: %v", len(host.Own), len(want), err)
	}
}

// TestForeignServer proves that the files of a konnectivity-server that was set up without the bundle are found by its flags, and that the
// bundle, which has other names and files, is not held against them. It is, if the bundle has that image.
func TestForeignServer(t *testing.T) {
	data, err := os.ReadFile(daemontest.Certificate(t).Cert)
	if err != nil {
		t.Fatal(err)
	}
	const image = "registry.k8s.io/kas-network-proxy/proxy-server:v0.36.0"
	for name, tc := range map[string]struct {
		runs, bundle string
		foreign      bool
	}{
		"upstream's":               {image, v1alpha1.DefaultServerImage, true},
		"upstream's of the bundle": {image, image, false},
		"Fairlead's":               {v1alpha1.DefaultServerImage, v1alpha1.DefaultServerImage, false},
	} {
		b := (&v1alpha1.Bundle{}).Defaulted()
		b.Konnectivity.Server.Image = tc.bundle
		root := t.TempDir()
		c := &collector{Target: Target{Root: root}, s: &Snapshot{Bundle: b, Names: incluster.NamesOf(b)}}
		for file, text := range map[string]string{
			"kube-apiserver.yaml":      "metadata: {name: kube-apiserver, namespace: kube-system}\nspec: {containers: [{name: c, command: [kube-apiserver]}]}\n",
			"konnectivity-server.yaml": "metadata: {name: konnectivity-server, namespace: kube-system}\nspec: {containers: [{name: c, image: '" + tc.runs + "', command: [/proxy-server], args: [--cluster-cert=/upstream.crt]}]}\n",
		} {
			if err := errors.Join(os.MkdirAll(filepath.Join(root, b.ControlPlane.ManifestsDir), 0o700), os.WriteFile(filepath.Join(root, b.ControlPlane.ManifestsDir, file), []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(root, "upstream.crt"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		host, err := c.hostFacts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found := slices.ContainsFunc(host.Own, func(f FileCertificate) bool { return f.Path == "/upstream.crt" && f.Leaf.Err == nil })
		if skipped := check.IsSkip(host.Certificates.Err); skipped != tc.foreign || found != tc.foreign {
			t.Errorf("%s: skipped %v, certificate found %v, want both %v (%v)", name, skipped, found, tc.foreign, host.Certificates.Err)
		}
	}
}
