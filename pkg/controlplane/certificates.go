// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"time"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/certs"
)

// WarnBefore is how long before its expiry a certificate is reported.
const WarnBefore = 30 * 24 * time.Hour

// Certificate is a certificate that the tunnel uses on this node.
type Certificate = certs.Certificate

// States of a certificate.
const (
	CertGood     = certs.Good
	CertExpiring = certs.Expiring
	CertExpired  = certs.Expired
	CertInvalid  = certs.Invalid
	CertMissing  = certs.Missing
	// CertExposed: users other than root can read the private key.
	CertExposed = certs.Exposed
)

// Certificates lists all certificates that the bundle uses on this node. It does
// not fail: a certificate's problem is in its State.
func Certificates(o Options, warnBefore time.Duration) []Certificate {
	return newNode(o.defaulted()).certs().Inspect(warnBefore)
}
