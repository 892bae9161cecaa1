// SPDX-License-Identifier: Apache-2.0

package tlsreload_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tlsreload"
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

func mustWrite(t *testing.T, path string, parts ...[]byte) {
	t.Helper()
	if err := os.WriteFile(path, bytes.Join(parts, nil), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCutBundle checks that a running process does not load a CA bundle, or a certificate
// chain, that is cut off at its end, so that it still accepts peers of the CA that is
// missing. A starting process loads it with a warning.
func TestCutBundle(t *testing.T) {
	p, ca := newPair(t)
	other := tunneltest.NewCA(t, t.TempDir())
	whole, otherCA := mustRead(t, ca.File), mustRead(t, other.File)
	before := p.handshake(t)
	mustWrite(t, ca.File, otherCA, whole[:len(whole)/2])
	p.handshake(t)
	if len(p.logs) != 1 || !strings.Contains(p.logs[0], `Keeping the certificates in use err="`+ca.File+" has 1 readable PEM block and 1 unreadable one") {
		t.Errorf("logged %q, want one line that keeps the certificates", p.logs)
	}
	var warned []string
	if _, err := tlsreload.NewLoader(p.files, p.record(&warned)); err != nil || len(warned) != 1 || !strings.Contains(warned[0], `0 Using only a part of a file err="`+ca.File+" has 1 readable PEM block and 1 unreadable one") {
		t.Errorf("a start with the cut bundle: %v, logged %q, want one warning", err, warned)
	}
	mustWrite(t, ca.File, otherCA, whole)
	p.logs = nil
	p.handshake(t)
	if len(p.logs) != 1 || !strings.HasPrefix(p.logs[0], "Reloaded") {
		t.Errorf("the whole bundle: logged %q, want that it was reloaded", p.logs)
	}

	chain := mustRead(t, p.files.Cert)
	ca.Issue(t, "both", time.Now().Add(time.Hour))
	mustWrite(t, p.files.Cert, mustRead(t, p.files.Cert), chain[:len(chain)/2])
	if got := p.handshake(t); got != before {
		t.Error("a certificate with a cut chain is used")
	}
}

// TestSameSizeAndTime: a pair that is replaced by one with the same sizes and times of
// modification is noticed, as where all files have one time.
func TestSameSizeAndTime(t *testing.T) {
	ca := tunneltest.NewCA(t, t.TempDir())
	when := time.Unix(1, 0)
	issue := func(name string) (crt, key string) {
		crt, key = ca.Issue(t, name, time.Now().Add(time.Hour))
		for _, path := range []string{crt, key} {
			data := mustRead(t, path)
			if len(data) > 4096 {
				t.Fatal("too long to be padded")
			}
			mustWrite(t, path, data, bytes.Repeat([]byte("\n"), 4096-len(data)))
			if err := os.Chtimes(path, when, when); err != nil {
				t.Fatal(err)
			}
		}
		return crt, key
	}
	p := &pair{}
	p.files.Cert, p.files.Key = issue("both")
	p.files.CA = ca.File
	p.load(t, logr.Logger{})
	first := p.handshake(t)
	next, nextKey := issue("next")
	for from, to := range map[string]string{next: p.files.Cert, nextKey: p.files.Key} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	if p.handshake(t) == first {
		t.Error("the certificate that took the place of the first is not used")
	}
}

// TestOverwrittenSameSizeAndTime is TestSameSizeAndTime with files that are written in place:
// they keep their inodes, and only the time of the change of the inode tells.
func TestOverwrittenSameSizeAndTime(t *testing.T) {
	ca := tunneltest.NewCA(t, t.TempDir())
	when := time.Unix(1, 0)
	p := &pair{}
	p.files.Cert, p.files.Key = ca.Issue(t, "both", time.Now().Add(time.Hour))
	p.files.CA = ca.File
	next, nextKey := ca.Issue(t, "next", time.Now().Add(time.Hour))
	write := func(path string, data []byte) {
		t.Helper()
		if len(data) > 4096 {
			t.Fatal("too long to be padded")
		}
		mustWrite(t, path, data, bytes.Repeat([]byte("\n"), 4096-len(data)))
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	write(p.files.Cert, mustRead(t, p.files.Cert))
	write(p.files.Key, mustRead(t, p.files.Key))
	p.load(t, logr.Logger{})
	first := p.handshake(t)
	time.Sleep(50 * time.Millisecond) // the kernel's times of changes have steps of up to 10 ms
	write(p.files.Cert, mustRead(t, next))
	write(p.files.Key, mustRead(t, nextKey))
	if p.handshake(t) == first {
		t.Error("the certificate that was written over the first is not used")
	}
}

// TestTouched: files that were only touched are not reloaded, and say nothing.
func TestTouched(t *testing.T) {
	p, ca := newPair(t)
	p.handshake(t)
	if err := os.Chtimes(ca.File, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Clean(p.files.Key), 0o400); err != nil {
		t.Fatal(err)
	}
	p.handshake(t)
	if len(p.logs) > 0 {
		t.Errorf("logged %q, want nothing", p.logs)
	}
}
