// SPDX-License-Identifier: Apache-2.0

package pemcheck_test

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/internal/pemcheck"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestCount: each block that was cut or damaged is noticed wherever the cut is, and what
// tools put around blocks is not taken for damage.
func TestCount(t *testing.T) {
	ca := tunneltest.NewCA(t, t.TempDir())
	crt, key := ca.Issue(t, "x", time.Now().Add(time.Hour))
	one, two, private := mustRead(t, ca.File), mustRead(t, crt), mustRead(t, key)
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	text := []byte("Certificate:\n    Data:\n        Version: 3 (0x2)\n-----\n# my CA -----\n\n")
	params := []byte("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n")
	garbled := bytes.Replace(two, []byte("\nMII"), []byte("\nAAA"), 1)
	if bytes.Equal(garbled, two) {
		t.Fatal("the certificate could not be garbled")
	}
	for name, c := range map[string]struct {
		data            []byte
		good, unreadble int
	}{
		"nothing":               {nil, 0, 0},
		"no PEM":                {[]byte("hello"), 0, 0},
		"two":                   {join(one, two), 2, 0},
		"CRLF":                  {bytes.ReplaceAll(join(one, two), []byte("\n"), []byte("\r\n")), 2, 0},
		"openssl -text":         {join(text, one, text, two), 2, 0},
		"parameters and key":    {join(params, private), 2, 0},
		"no newline at the end": {bytes.TrimSpace(join(one, two)), 2, 0},
		"second garbled":        {join(one, garbled), 1, 1},
		"first garbled":         {join(garbled, one), 1, 1},
		"first without begin":   {join(two[len(two)/2:], one), 1, 1},
		"cut, then another":     {join(two[:len(two)/2], []byte("\n"), one), 1, 1},
		"not base64":            {join(one, []byte("-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n")), 1, 1},
	} {
		if good, bad := pemcheck.Count(c.data); good != c.good || bad != c.unreadble {
			t.Errorf("%s: %d good and %d unreadable blocks, want %d and %d", name, good, bad, c.good, c.unreadble)
		}
	}
	for n := len("-----B"); n < len(bytes.TrimSpace(two)); n++ {
		if good, bad := pemcheck.Count(join(one, two[:n])); good != 1 || bad != 1 {
			t.Errorf("second certificate cut behind %d bytes: %d good and %d unreadable blocks, want 1 and 1", n, good, bad)
		}
	}
}

// TestCountOpenSSL: what openssl itself writes with -text is read whole.
func TestCountOpenSSL(t *testing.T) {
	openssl := daemontest.Program(t, "openssl")
	ca := tunneltest.NewCA(t, t.TempDir())
	out, err := exec.Command(openssl, "x509", "-text", "-in", ca.File).Output()
	if err != nil {
		t.Fatal(err)
	}
	if good, bad := pemcheck.Count(out); good != 1 || bad != 0 {
		t.Errorf("%d good and %d unreadable blocks, want 1 and 0, of\n%s", good, bad, out)
	}
}
