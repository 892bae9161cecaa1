// SPDX-License-Identifier: Apache-2.0

package tlsreload_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tlsreload"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// pair is a loader for both sides of a connection, and what it logged.
type pair struct {
	*tlsreload.Loader
	files tlsreload.Files
	logs  []string
}

func newPair(t *testing.T) (*pair, *tunneltest.CA) {
	t.Helper()
	ca := tunneltest.NewCA(t, t.TempDir())
	p := &pair{}
	p.files.Cert, p.files.Key = ca.Issue(t, "both", time.Now().Add(time.Hour))
	p.files.CA = ca.File
	p.load(t, logtest.New(func(_ int, line string) { p.logs = append(p.logs, line) }))
	return p, ca
}

// load makes the loader, which looks at the files at each use.
func (p *pair) load(t *testing.T, logger logr.Logger) {
	t.Helper()
	var err error
	if p.Loader, err = tlsreload.NewLoader(p.files, logger); err != nil {
		t.Fatal(err)
	}
	p.SetInterval(0)
}

// TestInterval checks that a loader looks at its files once a second: not before, so that each connection costs no look,
// and then.
func TestInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := tunneltest.NewCA(t, t.TempDir())
		p := &pair{}
		p.files.Cert, p.files.Key = ca.Issue(t, "both", time.Now().Add(time.Hour))
		p.files.CA = ca.File
		var err error
		if p.Loader, err = tlsreload.NewLoader(p.files, logr.Logger{}); err != nil {
			t.Fatal(err)
		}
		first := p.handshake(t)
		ca.Issue(t, "both", time.Now().Add(time.Hour))
		time.Sleep(time.Second - time.Nanosecond)
		if p.handshake(t) != first {
			t.Error("the loader has looked at its files within a second")
		}
		time.Sleep(time.Nanosecond)
		if p.handshake(t) == first {
			t.Error("the renewed certificate is not used after a second")
		}
	})
}

// record returns what adds lines, each behind its level, to a list.
func (*pair) record(to *[]string) logr.Logger {
	return logtest.New(func(level int, line string) { *to = append(*to, fmt.Sprintf("%d ", level)+line) })
}

// handshake returns the serial number of the server's certificate.
func (p *pair) handshake(t *testing.T) string {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	served := make(chan error, 1)
	go func() { served <- tls.Server(b, p.Server(&tls.Config{MinVersion: tls.VersionTLS12})).Handshake() }()
	c := tls.Client(a, p.Client(&tls.Config{ServerName: "localhost", MinVersion: tls.VersionTLS12}))
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// TestReload: a renewed certificate is used without a new loader, and one that is
// half written, or gone, leaves the old one in use and is logged once.
func TestReload(t *testing.T) {
	p, ca := newPair(t)
	first := p.handshake(t)
	ca.Issue(t, "both", time.Now().Add(time.Hour))
	second := p.handshake(t)
	if second == first {
		t.Error("the renewed certificate is not used")
	}
	for name, spoil := range map[string]func() error{
		"half written": func() error { return os.WriteFile(p.files.Cert, []byte("-----BEGIN CERTIFICATE-----\nMII"), 0o600) },
		"gone":         func() error { return os.Remove(p.files.Key) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		p.logs = nil
		for range 2 {
			if got := p.handshake(t); got != second {
				t.Errorf("%s: certificate %s is used, want %s as before", name, got, second)
			}
		}
		if len(p.logs) != 1 || !strings.Contains(p.logs[0], p.files.Cert) && !strings.Contains(p.logs[0], p.files.Key) {
			t.Errorf("%s: logged %q, want one line with the file", name, p.logs)
		}
		ca.Issue(t, "both", time.Now().Add(time.Hour))
		second = p.handshake(t)
	}
}

// TestLoadErrors: what a start would fail for is said with the file.
func TestLoadErrors(t *testing.T) {
	p, ca := newPair(t)
	_, otherKey := ca.Issue(t, "other", time.Now().Add(time.Hour))
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("not PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]tlsreload.Files{
		"no such file":      {Cert: "/does/not/exist", Key: p.files.Key},
		"key of another":    {Cert: p.files.Cert, Key: otherKey},
		"CA is garbage":     {CA: garbage},
		"cert is garbage":   {Cert: garbage, Key: p.files.Key},
		"CA is not there":   {CA: "/does/not/exist"},
		"CA is a key":       {CA: p.files.Key},
		"CA is a directory": {CA: t.TempDir()},
	} {
		_, err := tlsreload.NewLoader(files, logr.Logger{})
		if err == nil {
			t.Errorf("%s: loaded", name)
			continue
		}
		if !strings.Contains(err.Error(), files.Cert) && !strings.Contains(err.Error(), files.CA) {
			t.Errorf("%s: %v names no file", name, err)
		}
	}
	if _, err := tlsreload.NewLoader(tlsreload.Files{}, logr.Logger{}); err != nil {
		t.Errorf("no files at all: %v", err)
	}
}
