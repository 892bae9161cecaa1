// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Objects returns all objects of a bundle, for [Apply] and [Diff]: those that it renders,
// before them the Secrets of [GatewaySecrets], and what the tunnel's API server needs in addition to
// what is rendered: the Secrets with its CA and its serving certificate, and the APIService
// with that CA.
func Objects(ctx context.Context, cfg *rest.Config, b *v1alpha1.Bundle, now time.Time) ([]component.Object, error) {
	rendered, err := bundle.Render(b)
	if err != nil {
		return nil, err
	}
	secrets, err := GatewaySecrets(ctx, cfg, b, now)
	if err != nil {
		return nil, err
	}
	more, err := tunnelAPIObjects(ctx, cfg, b, now)
	return slices.Concat(secrets, rendered.Objects, more), err
}

// caKey is the key of the CA's certificates in the Secrets; the packages of the components say the same.
const caKey = component.CAKey

// certificate is one that install makes and renews, in a Secret, with a CA in another Secret.
type certificate struct {
	// owner and field are for messages: whose it is, and what to set for one of the user's.
	owner, field string
	// name is the CA's.
	name, secret, caSecret string
	request                pki.Request
	// make makes either Secret.
	make func(b *v1alpha1.Bundle, name string, pair pki.KeyPair, ca []byte) (*corev1.Secret, error)
}

// GatewaySecrets returns the Secrets with the gateway's CA and its serving certificate, for
// [Apply]. It keeps those in the cluster behind cfg as long as they are good, and makes new
// ones if they are missing, have other names, or have less than a third of their time left.
// It changes nothing. There are none if the bundle has no gateway in a Deployment, or if it
// names a certificate of its own.
func GatewaySecrets(ctx context.Context, cfg *rest.Config, b *v1alpha1.Bundle, now time.Time) ([]component.Object, error) {
	b = b.Defaulted()
	if !gateway.Enabled(b) || gateway.IsStatic(b) || b.Gateway.CertificateSecret != v1alpha1.DefaultGatewaySecret {
		return nil, nil
	}
	secrets, _, err := certificate{
		owner: "gateway", field: "gateway.certificateSecret", name: v1alpha1.GatewayName,
		secret: v1alpha1.DefaultGatewaySecret, caSecret: gateway.CASecret, request: gateway.CertificateRequest(b), make: gateway.Secret,
	}.secrets(ctx, cfg, b, now)
	return secrets, err
}

// tunnelAPIObjects returns the Secrets and the APIService of the tunnel's API server. There are none without that, or with
// a certificate of the user's, whose CA the bundle has.
func tunnelAPIObjects(ctx context.Context, cfg *rest.Config, b *v1alpha1.Bundle, now time.Time) ([]component.Object, error) {
	b = b.Defaulted()
	if !tunnelapi.Enabled(b) || b.TunnelAPI.CertificateSecret != v1alpha1.DefaultTunnelAPISecret {
		return nil, nil
	}
	secrets, trust, err := certificate{
		owner: "tunnel's API server", field: "tunnelAPI.certificateSecret", name: v1alpha1.TunnelAPIName,
		secret: v1alpha1.DefaultTunnelAPISecret, caSecret: tunnelapi.CASecret, request: tunnelapi.CertificateRequest(b), make: tunnelapi.Secret,
	}.secrets(ctx, cfg, b, now)
	if err != nil {
		return nil, err
	}
	return append(secrets, tunnelapi.APIService(b, trust)), nil
}

// secrets returns the two Secrets, and the CAs that clients should trust.
func (c certificate) secrets(ctx context.Context, cfg *rest.Config, b *v1alpha1.Bundle, now time.Time) ([]component.Object, []byte, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	stored := map[string]*corev1.Secret{}
	for _, name := range []string{c.caSecret, c.secret} {
		stored[name], err = client.CoreV1().Secrets(b.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, nil, fmt.Errorf("read the certificate of the %s: Secret %s/%s: %w: get rights for it, or set %s to a certificate of yours", c.owner, b.Namespace, name, err, c.field)
		}
	}
	ca, trust, err := c.ca(b, stored[c.caSecret], now)
	if err != nil {
		return nil, nil, err
	}
	serving, err := c.serving(b, stored[c.secret], ca, now)
	if err != nil {
		return nil, nil, err
	}
	caSecret, err := c.make(b, c.caSecret, ca, trust)
	if err != nil {
		return nil, nil, err
	}
	servingSecret, err := c.make(b, c.secret, serving, trust)
	return []component.Object{caSecret, servingSecret}, trust, err
}

// ca returns the CA and all CAs that clients should trust: also the one before, until
// it expires.
func (c certificate) ca(b *v1alpha1.Bundle, s *corev1.Secret, now time.Time) (ca pki.KeyPair, trust []byte, err error) {
	config := pki.FromBundle(b)
	if s != nil {
		ca, err = pki.ParseKeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
		if err == nil && pki.VerifyCA(ca, now) == nil && ca.Cert.NotAfter.Sub(now) > config.Validity && ca.Cert.Subject.CommonName != c.request.CommonName {
			return ca, trustOf(ca, s.Data[caKey], now), nil
		}
	}
	// A CA has to outlive what it signs.
	config.CAValidity = max(config.CAValidity, 2*config.Validity)
	if ca, err = pki.NewCA(config, c.name+"-ca", now); err != nil {
		return ca, nil, fmt.Errorf("make the CA of the %s: %w", c.owner, err)
	}
	var before []byte
	if s != nil {
		before = s.Data[caKey]
	}
	return ca, trustOf(ca, before, now), nil
}

// trustOf is the CA, and those of before that are still valid.
func trustOf(ca pki.KeyPair, before []byte, now time.Time) []byte {
	out := ca.CertPEM()
	certs, err := pki.ParseCerts(before)
	if err != nil {
		return out
	}
	for _, c := range certs {
		if !c.Equal(ca.Cert) && pki.VerifyTime(c, now) == nil {
			out = append(out, pki.EncodeCert(c)...)
		}
	}
	return out
}

func (c certificate) serving(b *v1alpha1.Bundle, s *corev1.Secret, ca pki.KeyPair, now time.Time) (pki.KeyPair, error) {
	if s != nil {
		pair, err := pki.ParseKeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
		if err == nil && isGood(pair.Cert, ca.Cert, c.request, now) {
			return pair, nil
		}
	}
	pair, err := ca.Issue(pki.FromBundle(b), c.request, now)
	if err != nil {
		return pair, fmt.Errorf("issue the certificate of the %s: %w", c.owner, err)
	}
	return pair, nil
}

// isGood reports whether a certificate is what was requested and has a third of its time left.
func isGood(cert, ca *x509.Certificate, r pki.Request, now time.Time) bool {
	sameIPs := len(cert.IPAddresses) == len(r.IPs)
	for i := 0; sameIPs && i < len(r.IPs); i++ {
		sameIPs = cert.IPAddresses[i].Equal(r.IPs[i])
	}
	return sameIPs && slices.Equal(cert.DNSNames, r.DNSNames) &&
		bytes.Equal(cert.RawIssuer, ca.RawSubject) && cert.CheckSignatureFrom(ca) == nil &&
		pki.VerifyTime(cert, now) == nil && cert.NotAfter.Sub(now) > cert.NotAfter.Sub(cert.NotBefore)/3
}
