// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"path"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// kubeadmFiles are kubeadm's files below the PKI directory, without the suffix, with the
// name by which "kubeadm certs renew" knows the certificate; "" if it does not renew it.
var kubeadmFiles = map[string]string{
	"ca": "", "etcd/ca": "", "front-proxy-ca": "", "sa": "",
	"apiserver": "apiserver", "apiserver-etcd-client": "apiserver-etcd-client", "apiserver-kubelet-client": "apiserver-kubelet-client",
	"front-proxy-client": "front-proxy-client",
	"etcd/server":        "etcd-server", "etcd/peer": "etcd-peer", "etcd/healthcheck-client": "etcd-healthcheck-client",
}

// kubeadms reports whether a file is kubeadm's, and returns the name by which "kubeadm certs
// renew" knows it.
func (n Node) kubeadms(file string) (name string, is bool) {
	rel, below := strings.CutPrefix(path.Clean(file), path.Clean(n.Bundle.ControlPlane.PKIDir)+"/")
	name, is = kubeadmFiles[strings.TrimSuffix(rel, path.Ext(rel))]
	return name, is && below
}

// renewalOf returns who renews a certificate. Other programs of the control plane use
// kubeadm's files, and so a certificate with a key of kubeadm's is renewed by hand.
func (n Node) renewalOf(cert string, key ...string) string {
	if name, is := n.kubeadms(cert); is && name != "" {
		return kubeadmRenew + name
	}
	for _, file := range append(key, cert) {
		if _, is := n.kubeadms(file); is {
			return byHand
		}
	}
	return byFairlead
}

// renewalOfClient returns who renews kube-apiserver's client certificate. A renewal by
// Fairlead replaces its CA, too, which may be kubeadm's.
func (n Node) renewalOfClient(tcp *v1alpha1.TCPTransport) string {
	renewal := n.renewalOf(tcp.ClientCert, tcp.ClientKey)
	if renewal == byFairlead && n.renewalOf(tcp.ClientCA) != byFairlead {
		return byHand
	}
	return renewal
}
