// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestCutClientCA: while the file of client CAs is cut in its second certificate, clients of
// both CAs are still accepted; once it is whole again, what it says holds.
func TestCutClientCA(t *testing.T) {
	read := func() (data []byte, cert *x509.Certificate) {
		data, err := os.ReadFile(tunneltest.NewCA(t, t.TempDir()).File)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(data)
		if cert, err = x509.ParseCertificate(block.Bytes); err != nil {
			t.Fatal(err)
		}
		return data, cert
	}
	oldPEM, oldCert := read()
	newPEM, newCert := read()
	both, cut := bytes.Join([][]byte{newPEM, oldPEM}, nil), bytes.Join([][]byte{newPEM, oldPEM[:len(oldPEM)/2]}, nil)
	var roots clientCAs
	accepts := func(step string, bundle []byte, wantOld bool) {
		t.Helper()
		pool, err := roots.parse("ca.crt", bundle)
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		for cert, want := range map[*x509.Certificate]bool{newCert: true, oldCert: wantOld} {
			if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); (err == nil) != want {
				t.Errorf("%s: %v: %v, want accepted %v", step, cert.Subject, err, want)
			}
		}
	}
	accepts("both", both, true)
	accepts("cut", cut, true)
	accepts("cut, next connection", cut, true)
	accepts("new alone", newPEM, false)
	accepts("both again", both, true)
}
