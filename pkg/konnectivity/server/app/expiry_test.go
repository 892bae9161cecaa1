// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tlsreload"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestCertificateExpiry: the server's metrics show when the certificate for agents expires, and follow a renewed one.
func TestCertificateExpiry(t *testing.T) {
	ca := tunneltest.NewCA(t, t.TempDir())
	soon, later := time.Now().Add(time.Hour), time.Now().Add(48*time.Hour)
	cert, key := ca.Issue(t, "server", soon)
	renewedCert, renewedKey := ca.Issue(t, "renewed", later)
	m := server.NewMetrics()
	show := func() string {
		var b strings.Builder
		m.Registry.Write(&b)
		return b.String()
	}
	line := func(at time.Time) string {
		return fmt.Sprintf("fairlead_tunnel_server_certificate_expiration_timestamp_seconds{peer=\"agents\"} %d\n", at.Unix())
	}
	o := NewOptions()
	if _, err := o.tls(m, "agents", tlsreload.Files{Cert: cert, Key: key}); err != nil {
		t.Fatal(err)
	}
	if text := show(); !strings.Contains(text, line(soon)) {
		t.Errorf("%q is missing in:\n%s", line(soon), text)
	}
	replaceFile(t, renewedCert, cert)
	replaceFile(t, renewedKey, key)
	for begin := time.Now(); !strings.Contains(show(), line(later)); time.Sleep(50 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("the metric does not follow the renewed certificate:\n%s", show())
		}
	}
}

func replaceFile(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
