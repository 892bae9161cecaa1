// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// TestShortCAs covers a short validity of the client certificate's CA: while the earlier CA,
// which a renewal leaves in the file, expires, a timer makes no other one, and nothing reports
// it.
func TestShortCAs(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	const day = 24 * time.Hour
	o := withBundle(root, tcpBundle())
	o.Bundle.PKI.CAValidity = &metav1.Duration{Duration: 60 * day}
	mustInstall(t, o)
	tcp, start := o.Bundle.Konnectivity.Transport.TCP, time.Now()
	for _, step := range []struct {
		day   int
		renew bool
		cas   int
	}{{10, false, 1}, {40, true, 2}, {41, false, 2}, {61, false, 2}, {80, true, 2}, {81, false, 2}} {
		o.Now = func() time.Time { return start.Add(time.Duration(step.day) * day) }
		r := renew(t, RenewOptions{Options: o, Before: WarnBefore})
		cas := readCerts(t, h, tcp.ClientCA)
		if r.Changed != step.renew || r.Changed && !slices.Contains(r.Files, tcp.ClientCA) || len(cas) != step.cas {
			t.Errorf("day %d: %v was changed, the file has %d CAs, want %d", step.day, r.Files, len(cas), step.cas)
		}
		if issuer := cas[0]; readCerts(t, h, tcp.ClientCert)[0].CheckSignatureFrom(issuer) != nil {
			t.Errorf("day %d: the newest CA did not issue the certificate", step.day)
		}
		for _, c := range Certificates(o, WarnBefore) {
			if c.State != CertGood {
				t.Errorf("day %d: %s is %s: %s", step.day, c.Path, c.State, c.Problem)
			}
		}
	}
	o.Now = func() time.Time { return start.Add(111 * day) }
	list := Certificates(o, WarnBefore)
	if !slices.ContainsFunc(list, func(c Certificate) bool { return c.Path == tcp.ClientCA && c.State == CertExpiring }) {
		t.Errorf("the CA in use expires, and is not reported: %+v", list)
	}
}
