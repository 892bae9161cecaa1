// SPDX-License-Identifier: Apache-2.0

// Package tlsreload builds TLS configurations from files and notices when the files
// change, so that renewed certificates and CAs take effect without a restart and
// without a failed connection.
package tlsreload

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/pkg/internal/pemcheck"
)

// Files are the PEM files of one side of TLS. CA may be empty.
type Files struct{ Cert, Key, CA string }

// checkEvery is how often a loader looks at its files, at most, unless SetInterval changes it.
const checkEvery = time.Second

// stamp identifies the content of a file without reading it. Tools that make files
// reproducible set the same time of modification for all, so the inode and the time of its
// last change belong to it as well.
type stamp struct {
	mod     time.Time
	size    int64
	name    string
	dev     uint64
	inode   uint64
	changed syscall.Timespec
}

func stampOf(path string) (stamp, error) {
	info, err := os.Stat(path) // follows the links of projected volumes
	if err != nil {
		return stamp{}, err
	}
	s := stamp{mod: info.ModTime(), size: info.Size(), name: path}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.dev, s.inode, s.changed = sys.Dev, sys.Ino, sys.Ctim
	}
	return s, nil
}

// Loader keeps the parsed content of Files.
type Loader struct {
	files  Files
	logger logr.Logger
	every  time.Duration

	mu      sync.Mutex
	checked time.Time
	stamps  [3]stamp
	sums    [3][sha256.Size]byte // of the files' content
	cert    *tls.Certificate
	pool    *x509.CertPool
	gen     int
	failed  string // the last failure, to log it once
}

// NewLoader loads the files once; it fails where a restart would fail too, and only warns
// of a part that cannot be read next to one that can. logger gets this, reloads and their
// failures.
func NewLoader(files Files, logger logr.Logger) (*Loader, error) {
	l := &Loader{files: files, logger: logger, every: checkEvery}
	_, err := l.load(func(damage error) error {
		logger.Error(damage, "Using only a part of a file")
		return nil
	})
	return l, err
}

// SetInterval sets how often the loader looks at its files, at most. With 0 it does so at each use. Call it before the
// first use.
func (l *Loader) SetInterval(d time.Duration) { l.every = d }

func (l *Loader) paths() [3]string { return [3]string{l.files.Cert, l.files.Key, l.files.CA} }

func (l *Loader) current() (stamps [3]stamp, err error) {
	for i, f := range l.paths() {
		if f == "" {
			continue
		}
		if stamps[i], err = stampOf(f); err != nil {
			return stamps, err
		}
	}
	return stamps, nil
}

// read returns the content of all files. onDamage decides whether a file is accepted if a
// part of it cannot be read.
func (l *Loader) read(onDamage func(error) error) (content [3][]byte, err error) {
	for i, f := range l.paths() {
		if f == "" {
			continue
		}
		data, err := os.ReadFile(f)
		if err != nil {
			return content, err
		}
		content[i] = data
		if err := pemcheck.Check(f, data); err != nil {
			if err = onDamage(err); err != nil {
				return content, err
			}
		}
	}
	return content, nil
}

// load reads everything, and tells whether it is new; a part that cannot be read leaves
// all as it was.
func (l *Loader) load(onDamage func(error) error) (changed bool, err error) {
	stamps, err := l.current()
	if err != nil {
		return false, err
	}
	content, err := l.read(onDamage)
	if err != nil {
		return false, err
	}
	var sums [3][sha256.Size]byte
	for i := range content {
		sums[i] = sha256.Sum256(content[i])
	}
	if l.gen > 0 && sums == l.sums {
		l.stamps = stamps
		return false, nil
	}
	var cert *tls.Certificate
	if l.files.Cert != "" {
		c, err := tls.X509KeyPair(content[0], content[1])
		if err != nil {
			return false, fmt.Errorf("loading key pair %s and %s: %w", l.files.Cert, l.files.Key, err)
		}
		cert = &c
	}
	var pool *x509.CertPool
	if l.files.CA != "" {
		pool = x509.NewCertPool()
		if !pool.AppendCertsFromPEM(content[2]) {
			return false, fmt.Errorf("CA file %s: %w", l.files.CA, errNoCert)
		}
	}
	l.cert, l.pool, l.stamps, l.sums = cert, pool, stamps, sums
	l.gen++
	return true, nil
}

var errNoCert = errors.New("no certificate in it")

// refresh reloads changed files. While they cannot be read whole, as between the
// writing of a certificate and its key, the old content stays in use.
func (l *Loader) refresh() (*tls.Certificate, *x509.CertPool, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.checked) >= l.every {
		l.checked = now
		stamps, err := l.current()
		if err == nil && stamps != l.stamps {
			var changed bool
			if changed, err = l.load(func(damage error) error { return damage }); changed {
				l.logger.V(1).Info("Reloaded certificates", "certificate", l.files.Cert, "ca", l.files.CA)
			}
		}
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != l.failed && text != "" {
			l.logger.Error(err, "Keeping the certificates in use")
		}
		l.failed = text
	}
	return l.cert, l.pool, l.gen
}

// NotAfter returns when the certificate in use expires; zero without a certificate.
func (l *Loader) NotAfter() time.Time {
	cert, _, _ := l.refresh()
	if cert == nil || cert.Leaf == nil {
		return time.Time{}
	}
	return cert.Leaf.NotAfter
}

// Server returns a configuration for a listener. With a CA, clients must have a
// certificate of it.
func (l *Loader) Server(base *tls.Config) *tls.Config {
	cfg := base.Clone()
	var mu sync.Mutex
	var built *tls.Config
	gen := 0
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		cert, pool, g := l.refresh()
		mu.Lock()
		defer mu.Unlock()
		if g != gen {
			c := base.Clone()
			if cert != nil {
				c.Certificates = []tls.Certificate{*cert}
			}
			if pool != nil {
				c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, pool
			}
			built, gen = c, g
		}
		return built, nil
	}
	return cfg
}

// VerifyClient returns why a handshake with a listener of Server would refuse a client with
// these certificates now, its own one first. Without a CA it accepts all.
func (l *Loader) VerifyClient(chain []*x509.Certificate) error {
	_, pool, _ := l.refresh()
	if pool == nil {
		return nil
	}
	if len(chain) == 0 {
		return errors.New("the client has no certificate")
	}
	options := x509.VerifyOptions{Roots: pool, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(options)
	return err //nolint:wrapcheck // says what is wrong with the certificate
}

// Client returns a configuration for the next connection as a client.
func (l *Loader) Client(base *tls.Config) *tls.Config {
	cert, pool, _ := l.refresh()
	cfg := base.Clone()
	cfg.RootCAs = pool
	if cert != nil {
		cfg.Certificates = []tls.Certificate{*cert}
	}
	return cfg
}
