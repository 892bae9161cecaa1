// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
)

// setCertificate notes in the status until when a certificate is valid; a zero time removes it.
func setCertificate(b *v1beta1.Bundle, name string, until time.Time) {
	all := slices.DeleteFunc(b.Status.Certificates, func(c v1beta1.CertificateStatus) bool { return c.Name == name })
	if !until.IsZero() {
		all = append(all, v1beta1.CertificateStatus{Name: name, NotAfter: metav1.NewTime(until)})
	}
	slices.SortFunc(all, func(a, b v1beta1.CertificateStatus) int { return cmp.Compare(a.Name, b.Name) })
	b.Status.Certificates = all
}

// setCertificates lists the certificates in the Secrets of a bundle that is applied. Those of the webhook, which is not in
// the bundle, follow in certificatesValid.
func setCertificates(b *v1beta1.Bundle, objects []component.Object) {
	b.Status.Certificates = nil
	for _, o := range objects {
		secret, ok := o.(*corev1.Secret)
		if !ok {
			continue
		}
		if certs, err := pki.ParseCerts(secret.Data[corev1.TLSCertKey]); err == nil && len(certs) > 0 {
			setCertificate(b, secret.Name, certs[0].NotAfter)
		}
	}
}

// expired names a certificate that has expired, or returns "".
func expired(b *v1beta1.Bundle, now time.Time) string {
	for _, c := range b.Status.Certificates {
		if now.After(c.NotAfter.Time) {
			return fmt.Sprintf("the certificate in Secret %s has expired at %s", c.Name, c.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	return ""
}

// certificatesValid reports the certificates of the webhook that this replica serves.
func (r *BundleReconciler) certificatesValid(b *v1beta1.Bundle) {
	set := conditions(b)
	if r.certificates == nil {
		set(v1beta1.BundleCertificatesValid, true, v1beta1.ReasonDisabled, "the operator serves no webhook")
		return
	}
	s := r.certificates.state.Load()
	if s == nil {
		s = &certificateState{failure: errors.New("there is no certificate yet")}
	}
	setCertificate(b, secretName, s.serving)
	setCertificate(b, secretName+"-ca", s.ca)
	text := fmt.Sprintf("the webhook's certificate is valid until %s, its CA until %s", s.serving.UTC().Format(time.RFC3339), s.ca.UTC().Format(time.RFC3339))
	switch now := r.certificates.now(); {
	case now.After(s.serving) || now.After(s.ca):
		set(v1beta1.BundleCertificatesValid, false, v1beta1.ReasonCertificatesExpired, text+renewalFailure(s.failure))
	case now.Before(s.begin):
		text += ", and not before " + s.begin.UTC().Format(time.RFC3339)
		set(v1beta1.BundleCertificatesValid, false, v1beta1.ReasonCertificatesNotYetValid, text+renewalFailure(s.failure))
	case expired(b, now) != "":
		set(v1beta1.BundleCertificatesValid, false, v1beta1.ReasonCertificatesExpired, expired(b, now)+": condition Reconciled says why it is not renewed")
	case s.failure != nil:
		set(v1beta1.BundleCertificatesValid, false, v1beta1.ReasonRenewalFailed, text+renewalFailure(s.failure))
	default:
		set(v1beta1.BundleCertificatesValid, true, v1beta1.ReasonCertificatesValid, text)
	}
}

// renewalFailure continues a sentence about certificates.
func renewalFailure(err error) string {
	if err == nil {
		return ": look for the renewal in the operator's log"
	}
	return fmt.Sprintf("; the last renewal failed: %v", err)
}
