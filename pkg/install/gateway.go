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
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Objects returns all objects of a bundle, for [Apply] and [Diff]: those that it renders, and
// before them the Secrets of [GatewaySecrets].
func Objects(ctx context.Context, cfg *rest.Config, b *v1alpha1.Bundle, now time.Time) ([]component.Object, error) {
	rendered, err := bundle.Render(b)
	if err != nil {
		return nil, err
	}
	secrets, err := GatewaySecrets(ctx, cfg, b, now)
	return append(secrets, rendered.Objects...), err
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
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	stored := map[string]*corev1.Secret{}
	for _, name := range []string{gateway.CASecret, v1alpha1.DefaultGatewaySecret} {
		stored[name], err = client.CoreV1().Secrets(b.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("read the gateway's certificate: Secret %s/%s: %w: get rights for it, or set gateway.certificateSecret to a certificate of yours", b.Namespace, name, err)
		}
	}
	ca, trust, err := gatewayCA(b, stored[gateway.CASecret], now)
	if err != nil {
		return nil, err
	}
	serving, err := gatewayServing(b, stored[v1alpha1.DefaultGatewaySecret], ca, now)
	if err != nil {
		return nil, err
	}
	caSecret, err := gateway.Secret(b, gateway.CASecret, ca, trust)
	if err != nil {
		return nil, err
	}
	servingSecret, err := gateway.Secret(b, v1alpha1.DefaultGatewaySecret, serving, trust)
	return []component.Object{caSecret, servingSecret}, err
}

// gatewayCA returns the CA and all CAs that clients should trust: also the one before, until
// it expires.
func gatewayCA(b *v1alpha1.Bundle, s *corev1.Secret, now time.Time) (ca pki.KeyPair, trust []byte, err error) {
	config := pki.FromBundle(b)
	if s != nil {
		ca, err = pki.ParseKeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
		if err == nil && pki.VerifyCA(ca, now) == nil && ca.Cert.NotAfter.Sub(now) > config.Validity {
			return ca, trustOf(ca, s.Data[gateway.CAKey], now), nil
		}
	}
	// A CA has to outlive what it signs.
	config.CAValidity = max(config.CAValidity, 2*config.Validity)
	if ca, err = pki.NewCA(config, v1alpha1.GatewayName, now); err != nil {
		return ca, nil, fmt.Errorf("make the gateway's CA: %w", err)
	}
	var before []byte
	if s != nil {
		before = s.Data[gateway.CAKey]
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

func gatewayServing(b *v1alpha1.Bundle, s *corev1.Secret, ca pki.KeyPair, now time.Time) (pki.KeyPair, error) {
	request := gateway.CertificateRequest(b)
	if s != nil {
		pair, err := pki.ParseKeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
		if err == nil && isGood(pair.Cert, ca.Cert, request, now) {
			return pair, nil
		}
	}
	pair, err := ca.Issue(pki.FromBundle(b), request, now)
	if err != nil {
		return pair, fmt.Errorf("issue the gateway's certificate: %w", err)
	}
	return pair, nil
}

// isGood tells whether a certificate is what was requested and has a third of its time left.
func isGood(cert, ca *x509.Certificate, r pki.Request, now time.Time) bool {
	sameIPs := len(cert.IPAddresses) == len(r.IPs)
	for i := 0; sameIPs && i < len(r.IPs); i++ {
		sameIPs = cert.IPAddresses[i].Equal(r.IPs[i])
	}
	return sameIPs && slices.Equal(cert.DNSNames, r.DNSNames) &&
		bytes.Equal(cert.RawIssuer, ca.RawSubject) && cert.CheckSignatureFrom(ca) == nil &&
		pki.VerifyTime(cert, now) == nil && cert.NotAfter.Sub(now) > cert.NotAfter.Sub(cert.NotBefore)/3
}
