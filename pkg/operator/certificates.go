// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	config "github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// secretName is the Secret that all replicas share.
const secretName = operator.WebhookSecret

// Keys of the Secret.
const (
	keyCABundle = "ca.crt" // the current CA first, then older ones
	keyCAKey    = "ca.key"
	keyCert     = corev1.TLSCertKey
	keyKey      = corev1.TLSPrivateKeyKey
)

// publishedAt is the Secret's annotation with the time since which the definitions have its CA.
const publishedAt = "fairlead.dev/ca-published-at"

// Validities. A CA is replaced when a third of its time is left, a certificate likewise.
const (
	caValidity   = 365 * 24 * time.Hour
	certValidity = 90 * 24 * time.Hour
	// overlap is how long a new CA is in the definitions before a certificate of it is served.
	overlap = time.Hour
)

// certificates are the CA and the certificate of the webhook. The CA is our own, so that
// conversion depends on no other component, and is the same for all replicas.
type certificates struct {
	client    kubernetes.Interface
	namespace string
	names     []string
	now       func() time.Time
	// published reports whether clients trust a CA, in PEM; nil if they always do.
	published func(ctx context.Context, ca []byte) (bool, error)
	// started is set when this replica can be called: it listens, and the definitions have its CA. ending is set when
	// it is about to end.
	started, ending atomic.Bool

	serving atomic.Pointer[tls.Certificate]
	state   atomic.Pointer[certificateState]
}

// certificateState is what a Bundle's condition says about the certificates.
type certificateState struct {
	ca, serving time.Time // when they expire
	begin       time.Time // when both are valid
	failure     error     // of the last renewal
}

// get implements the field of tls.Config.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if cert := c.serving.Load(); cert != nil {
		return cert, nil
	}
	return nil, errors.New("no certificate yet")
}

// check implements healthz.Checker: a replica is ready if it can convert.
func (c *certificates) check(*http.Request) error {
	switch {
	case c.ending.Load():
		return errors.New("the operator is shutting down")
	case !c.started.Load():
		return errors.New("the operator is starting")
	}
	cert, err := c.get(nil)
	if err != nil {
		return err
	}
	switch now := c.now(); {
	case now.After(cert.Leaf.NotAfter):
		return fmt.Errorf("the webhook's certificate has expired at %s", cert.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(cert.Leaf.NotBefore):
		return fmt.Errorf("the webhook's certificate is not valid before %s: check the clocks of the nodes", cert.Leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// failed keeps why the last renewal failed.
func (c *certificates) failed(err error) {
	now := certificateState{failure: err}
	if before := c.state.Load(); before != nil {
		now.ca, now.serving, now.begin = before.ca, before.serving, before.begin
	}
	c.state.Store(&now)
}

// ensure makes or renews what is missing or due, loads the certificate, and returns the
// CAs that clients must trust.
func (c *certificates) ensure(ctx context.Context) ([]byte, error) {
	secrets := c.client.CoreV1().Secrets(c.namespace)
	for range 5 { // other replicas may write at the same time
		secret, err := secrets.Get(ctx, secretName, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return nil, fmt.Errorf("read Secret %s/%s: %w", c.namespace, secretName, err)
		}
		if missing {
			secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName, Namespace: c.namespace}, Type: corev1.SecretTypeTLS}
		}
		changed, err := c.renew(ctx, secret)
		if err != nil {
			return nil, err
		}
		switch {
		case missing:
			_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
		case changed:
			_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		}
		if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("write Secret %s/%s: %w", c.namespace, secretName, err)
		}
		return secret.Data[keyCABundle], c.load(secret)
	}
	return nil, fmt.Errorf("write Secret %s/%s: other replicas change it all the time: look for several operators in namespace %s", c.namespace, secretName, c.namespace)
}

func (c *certificates) load(secret *corev1.Secret) error {
	cert, err := tls.X509KeyPair(secret.Data[keyCert], secret.Data[keyKey])
	if err != nil {
		return fmt.Errorf("Secret %s/%s: %w: delete it, and the operator makes another", c.namespace, secretName, err)
	}
	ca, err := pki.ParseKeyPair(firstPEM(secret.Data[keyCABundle]), secret.Data[keyCAKey])
	if err != nil {
		return fmt.Errorf("Secret %s/%s: the CA: %w: delete it, and the operator makes another", c.namespace, secretName, err)
	}
	c.serving.Store(&cert)
	begin := cert.Leaf.NotBefore
	if ca.Cert.NotBefore.After(begin) {
		begin = ca.Cert.NotBefore
	}
	c.state.Store(&certificateState{ca: ca.Cert.NotAfter, serving: cert.Leaf.NotAfter, begin: begin})
	return nil
}

// renew changes the Secret if that is due. A new CA is first published next to the old one; a
// certificate of it follows overlap after clients have it, or at once if the old one lacks a name or is not valid: no call would
// succeed.
func (c *certificates) renew(ctx context.Context, secret *corev1.Secret) (bool, error) {
	now := c.now()
	settings := pki.Config{Algorithm: config.KeyECDSAP256, Validity: certValidity, CAValidity: caValidity}
	ca, changed, err := renewCA(secret, settings, now)
	if err != nil {
		return false, err
	}
	serving, err := pki.ParseKeyPair(secret.Data[keyCert], secret.Data[keyKey])
	has, wanted := sets.Set[string](nil), nameSet(dnsNames(c.names), ips(c.names))
	if err == nil {
		has = nameSet(serving.Cert.DNSNames, serving.Cert.IPAddresses)
	}
	switch {
	case err == nil && !due(serving, now) && has.Equal(wanted) && signedBy(serving, ca):
		return changed, nil
	case err == nil && pki.VerifyTime(serving.Cert, now) == nil && has.IsSuperset(wanted) && !signedBy(serving, ca):
		noted, trusted, err := c.trusted(ctx, secret, ca, now)
		if changed = changed || noted; err != nil || !trusted {
			return changed, err
		}
	}
	issued, err := ca.Issue(settings, pki.Request{CommonName: secretName, DNSNames: dnsNames(c.names), IPs: ips(c.names), Usages: pki.ServerAuth}, now)
	if err != nil {
		return false, err
	}
	secret.Data[keyCert] = issued.CertPEM()
	secret.Data[keyKey], err = issued.KeyPEM()
	return true, err
}

// trusted reports whether every API server trusts a new CA: the definitions have it now, and had it
// overlap ago. When they were first seen with it is noted in the Secret; a note from the future is of a clock that was ahead.
func (c *certificates) trusted(ctx context.Context, secret *corev1.Secret, ca pki.KeyPair, now time.Time) (noted, trusted bool, err error) {
	if c.published != nil {
		if published, err := c.published(ctx, ca.CertPEM()); err != nil || !published {
			return false, false, err
		}
	}
	since, err := time.Parse(time.RFC3339, secret.Annotations[publishedAt])
	if err == nil && !since.After(now) {
		return false, !now.Before(since.Add(overlap)), nil
	}
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, publishedAt, now.UTC().Format(time.RFC3339))
	return true, false, nil
}

// renewCA makes a new CA if the Secret has none that can be read, or that is due. It keeps the newest one before that is valid: a
// certificate of it is served, or may be.
func renewCA(secret *corev1.Secret, settings pki.Config, now time.Time) (ca pki.KeyPair, changed bool, err error) {
	ca, err = pki.ParseKeyPair(firstPEM(secret.Data[keyCABundle]), secret.Data[keyCAKey])
	if err == nil && !due(ca, now) {
		return ca, false, nil
	}
	older := firstValid(secret.Data[keyCABundle], now)
	if err != nil {
		older = nil // unreadable, so no certificate of it is served
	}
	if ca, err = pki.NewCA(settings, "fairlead-operator-webhook-ca", now); err != nil {
		return ca, false, err
	}
	keyPEM, err := ca.KeyPEM()
	if err != nil {
		return ca, false, err
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	delete(secret.Annotations, publishedAt)
	secret.Data[keyCAKey], secret.Data[keyCABundle] = keyPEM, append(ca.CertPEM(), older...)
	if older == nil {
		delete(secret.Data, keyCert)
	}
	return ca, true, nil
}

// due reports whether less than a third of a certificate's time is left, or the certificate is not valid yet: it was made by a clock
// that was ahead.
func due(p pki.KeyPair, now time.Time) bool {
	return now.Before(p.Cert.NotBefore) || p.Cert.NotAfter.Sub(now) < p.Cert.NotAfter.Sub(p.Cert.NotBefore)/3
}

func signedBy(p, ca pki.KeyPair) bool { return p.Cert.CheckSignatureFrom(ca.Cert) == nil }

func firstPEM(data []byte) []byte {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil
	}
	return pem.EncodeToMemory(block)
}

// firstValid is the first certificate that is valid, in PEM; nil if there is none.
func firstValid(data []byte, now time.Time) []byte {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && pki.VerifyTime(cert, now) == nil {
			return pki.EncodeCert(cert)
		}
	}
	return nil
}

// nameSet is the names and addresses of a certificate, each address in one form.
func nameSet(dns []string, addresses []net.IP) sets.Set[string] {
	all := sets.New(dns...)
	for _, ip := range addresses {
		all.Insert(ip.String())
	}
	return all
}

func dnsNames(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return net.ParseIP(n) != nil })
}

func ips(names []string) []net.IP {
	var out []net.IP
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			out = append(out, ip)
		}
	}
	return out
}
