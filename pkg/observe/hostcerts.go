// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/internal/hostpath"
)

// ownFlags name files with certificates of a kube-apiserver, and what they are for.
var ownFlags = []struct{ flag, use, renewal string }{
	{"tls-cert-file", "kube-apiserver to clients", "kubeadm certs renew apiserver"},
	{"kubelet-client-certificate", "kube-apiserver to kubelets", "kubeadm certs renew apiserver-kubelet-client"},
	{"proxy-client-cert-file", "kube-apiserver to aggregated API servers", "kubeadm certs renew front-proxy-client"},
	{"etcd-certfile", "kube-apiserver to etcd", "kubeadm certs renew apiserver-etcd-client"},
}

// kubeletFiles are where kubeadm's kubelets keep their certificates. A kubelet without rotation has its serving certificate in the last one.
var kubeletFiles = []struct{ file, use, renewal string }{
	{"/var/lib/kubelet/pki/kubelet-client-current.pem", "kubelet to kube-apiserver",
		"write a new bootstrap kubeconfig, then restart kubelet; with kubeadm, see \"kubelet client certificate rotation fails\" on https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/troubleshooting-kubeadm/"},
	{"/var/lib/kubelet/pki/kubelet-server-current.pem", "kubelet to kube-apiserver's calls",
		"systemctl restart kubelet   # then approve its request: kubectl get csr"},
	{"/var/lib/kubelet/pki/kubelet.crt", "kubelet to kube-apiserver's calls",
		"rm /var/lib/kubelet/pki/kubelet.crt /var/lib/kubelet/pki/kubelet.key && systemctl restart kubelet   # which generates both"},
}

// ownCertificates are those of this node's kube-apiserver and kubelet.
func (c *collector) ownCertificates(api Program) []FileCertificate {
	var out []FileCertificate
	for _, f := range ownFlags {
		if file := api.Flag(f.flag, ""); file != "" {
			out = append(out, c.fileCertificate(OnHost(api, file), f.use, f.renewal+"   # then restart kube-apiserver"))
		}
	}
	for _, f := range kubeletFiles {
		if !c.has(f.file) {
			continue
		}
		cert := c.fileCertificate(f.file, f.use, f.renewal)
		cert.Rotated = f.file != kubeletFiles[2].file
		out = append(out, cert)
		if f.file == kubeletFiles[1].file {
			break // kubelet.crt is not in use then
		}
	}
	return out
}

func (c *collector) fileCertificate(file, use, renewal string) FileCertificate {
	out := FileCertificate{Path: file, Use: use, Renewal: renewal}
	data, err := os.ReadFile(hostpath.Follow(c.Root, file))
	if err != nil {
		out.Leaf.Err = err
		return out
	}
	out.parse(data)
	return out
}

// parse takes the first certificate.
func (f *FileCertificate) parse(data []byte) {
	certs, err := pki.ParseCerts(data)
	if err == nil && len(certs) == 0 {
		err = errors.New("it has no certificate")
	}
	if err != nil {
		f.Leaf.Err = fmt.Errorf("%s: %w", f.Path, err)
		return
	}
	f.Leaf.Value = certs[0]
}

// etcdFlags name files with certificates of an etcd, and what they are for.
var etcdFlags = []struct{ flag, use, renewal string }{
	{"cert-file", "etcd to its clients", "kubeadm certs renew etcd-server   # then restart etcd"},
	{"peer-cert-file", "etcd to other members", "kubeadm certs renew etcd-peer   # then restart etcd"},
}

// etcdCertificates are those of the etcd next to kube-apiserver. An etcd elsewhere has none here.
func (c *collector) etcdCertificates() []FileCertificate {
	var out []FileCertificate
	pod, file, err := c.staticPod("etcd")
	switch {
	case err == nil:
		args := argsOf(pod)
		for _, f := range etcdFlags {
			if file := args.Flag(f.flag, ""); file != "" {
				out = append(out, c.fileCertificate(OnHost(args, file), f.use, f.renewal))
			}
		}
	case !errors.Is(err, fs.ErrNotExist):
		out = append(out, FileCertificate{Path: file, Use: "manifest of etcd", Renewal: "kubeadm init phase etcd local", Leaf: Fact[*x509.Certificate]{Err: err}})
	}
	probe := path.Join(c.s.Bundle.ControlPlane.PKIDir, "etcd/healthcheck-client.crt")
	if c.has(probe) {
		out = append(out, c.fileCertificate(probe, "etcd's liveness probe to etcd", "kubeadm certs renew etcd-healthcheck-client"))
	}
	return out
}

// argsOf are those of a Pod's first container.
func argsOf(pod corev1.Pod) Program {
	p := Program{Pod: &pod}
	if len(pod.Spec.Containers) > 0 {
		p.Args = slices.Concat(pod.Spec.Containers[0].Command, pod.Spec.Containers[0].Args)
	}
	return p
}

func (c *collector) has(file string) bool {
	_, err := os.Stat(hostpath.Follow(c.Root, file))
	return !errors.Is(err, fs.ErrNotExist)
}

// foreignServer returns the konnectivity-server of this node's manifests, if it is of another project and the bundle has Fairlead's: it was set
// up without the bundle then.
func (c *collector) foreignServer() (server Program, foreign bool) {
	pod, _, err := c.staticPod(konnectivity.ServerName)
	if err != nil || len(pod.Spec.Containers) == 0 {
		return server, false
	}
	server = argsOf(pod)
	server.Image = pod.Spec.Containers[0].Image
	return server, !v1alpha1.IsFairlead(server.Image) && v1alpha1.IsFairlead(c.s.Bundle.Konnectivity.Server.Image)
}

// serverCertificates are those of a konnectivity-server that was set up without the bundle.
func (c *collector) serverCertificates(server Program) []FileCertificate {
	var out []FileCertificate
	if file := server.Flag("cluster-cert", ""); file != "" {
		out = append(out, c.fileCertificate(OnHost(server, file), "konnectivity-server to agents", ""))
	}
	if file := server.Flag("kubeconfig", ""); file != "" {
		out = append(out, c.kubeconfigCertificate(OnHost(server, file), "konnectivity-server to kube-apiserver", "")...)
	}
	return out
}

// kubeadmDir is where kubeadm writes kubeconfigs.
const kubeadmDir = "/etc/kubernetes"

// kubeconfigCertificates are the client certificates in the kubeconfigs of this node's programs and administrators. That of kubelet leads to a file
// of kubeletFiles, those of Fairlead's programs are in HostFacts.Certificates.
func (c *collector) kubeconfigCertificates() []FileCertificate {
	var out []FileCertificate
	for _, name := range []string{"controller-manager", "scheduler"} {
		program := "kube-" + name
		if pod, _, err := c.staticPod(program); err == nil {
			args := argsOf(pod)
			if file := args.Flag("kubeconfig", ""); file != "" {
				out = append(out, c.kubeconfigCertificate(OnHost(args, file), program+" to kube-apiserver", "kubeadm certs renew "+name+".conf   # then restart "+program)...)
			}
		}
	}
	for _, name := range []string{"admin.conf", "super-admin.conf"} {
		if file := path.Join(kubeadmDir, name); c.has(file) {
			out = append(out, c.kubeconfigCertificate(file, "administrators of this node to kube-apiserver", "kubeadm certs renew "+name)...)
		}
	}
	return out
}

// kubeconfigCertificate is that of the current context's user, nothing if the user has none.
func (c *collector) kubeconfigCertificate(file, use, renewal string) []FileCertificate {
	out := FileCertificate{Path: file, Use: use, Renewal: renewal}
	data, err := os.ReadFile(hostpath.Follow(c.Root, file))
	if err != nil {
		out.Leaf.Err = err
		return []FileCertificate{out}
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		out.Leaf.Err = fmt.Errorf("%s: %w", file, err)
		return []FileCertificate{out}
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.AuthInfos[current.AuthInfo] == nil {
		out.Leaf.Err = fmt.Errorf("%s: its current context has no user", file)
		return []FileCertificate{out}
	}
	switch user := config.AuthInfos[current.AuthInfo]; {
	case len(user.ClientCertificateData) > 0:
		out.parse(user.ClientCertificateData)
		return []FileCertificate{out}
	case user.ClientCertificate != "":
		cert := user.ClientCertificate
		if !path.IsAbs(cert) {
			cert = path.Join(path.Dir(file), cert)
		}
		return []FileCertificate{c.fileCertificate(cert, use, renewal)}
	}
	return nil
}
