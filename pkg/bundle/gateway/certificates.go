// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// CASecret is the Secret with the CA that "fairlead install" makes. No Pod mounts it.
const CASecret = v1alpha1.GatewayName + "-ca"

// ServerName is the name that every serving certificate of a bundle has.
func ServerName(b *v1alpha1.Bundle) string {
	return v1alpha1.GatewayName + "." + b.Defaulted().Namespace + ".svc"
}

// CertificateRequest describes the serving certificate.
func CertificateRequest(b *v1alpha1.Bundle) pki.Request {
	b = b.Defaulted()
	name := ServerName(b)
	r := pki.Request{
		CommonName: v1alpha1.GatewayName, Usages: pki.ServerAuth,
		DNSNames: []string{v1alpha1.GatewayName, v1alpha1.GatewayName + "." + b.Namespace, name, name + ".cluster.local"},
	}
	if b.Gateway.Form == v1alpha1.FormStaticPod {
		r.DNSNames, r.IPs = []string{name, "localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	}
	for _, host := range b.Gateway.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			r.IPs = append(r.IPs, ip)
		} else {
			r.DNSNames = append(r.DNSNames, host)
		}
	}
	return r
}

// Secret is a certificate with its key and its CA, as the gateway's Pods mount it.
func Secret(b *v1alpha1.Bundle, name string, pair pki.KeyPair, ca []byte) (*corev1.Secret, error) {
	key, err := pair.KeyPEM()
	if err != nil {
		return nil, fmt.Errorf("encode the key of Secret %s: %w", name, err)
	}
	return component.CertificateSecret(meta(b.Defaulted(), name), pair.CertPEM(), key, ca), nil
}

// StaticKubeconfig makes the kubeconfig of the static Pod with everything embedded. It must be
// written with mode 0600 before the static Pod appears. ca is the cluster's CA and serverURL
// its API server.
func StaticKubeconfig(b *v1alpha1.Bundle, ca pki.KeyPair, serverURL string, now time.Time) ([]byte, error) {
	client, err := ca.Issue(pki.FromBundle(b), pki.Request{CommonName: User, Usages: pki.ClientAuth}, now)
	if err != nil {
		return nil, fmt.Errorf("issue the certificate of %s: %w", User, err)
	}
	return pki.Kubeconfig(pki.KubeconfigRequest{
		Cluster: "kubernetes", Server: serverURL, CA: ca.CertPEM(), User: User, Client: client,
	})
}
