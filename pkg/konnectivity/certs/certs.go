// Package certs builds TLS configurations from files and notices when the files
// change, so that renewed certificates and CAs take effect without a restart and
// without a failed connection.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Files are the PEM files of one side of TLS. CA may be empty.
type Files struct{ Cert, Key, CA string }

// checkEvery is how often files are looked at, at most.
const checkEvery = time.Second

// stamp identifies the content of a file without reading it.
type stamp struct {
	mod  time.Time
	size int64
	name string
}

func stampOf(path string) (stamp, error) {
	info, err := os.Stat(path) // follows the links of projected volumes
	if err != nil {
		return stamp{}, err
	}
	return stamp{info.ModTime(), info.Size(), path}, nil
}

// Loader keeps the parsed content of Files.
type Loader struct {
	files Files
	logf  func(format string, args ...any)

	mu      sync.Mutex
	checked time.Time
	stamps  [3]stamp
	cert    *tls.Certificate
	pool    *x509.CertPool
	gen     int
	failed  string // the last failure, to log it once
}

// NewLoader loads the files once; it fails where a restart would fail too. logf
// gets reloads and their failures, and may be nil.
func NewLoader(files Files, logf func(string, ...any)) (*Loader, error) {
	if logf == nil {
		logf = func(string, ...any) {}
	}
	l := &Loader{files: files, logf: logf}
	return l, l.load()
}

func (l *Loader) current() (stamps [3]stamp, err error) {
	for i, f := range [3]string{l.files.Cert, l.files.Key, l.files.CA} {
		if f == "" {
			continue
		}
		if stamps[i], err = stampOf(f); err != nil {
			return stamps, err
		}
	}
	return stamps, nil
}

// load reads everything; a part that cannot be read leaves all as it was.
func (l *Loader) load() error {
	stamps, err := l.current()
	if err != nil {
		return err
	}
	var cert *tls.Certificate
	if l.files.Cert != "" {
		c, err := tls.LoadX509KeyPair(l.files.Cert, l.files.Key)
		if err != nil {
			return fmt.Errorf("loading key pair %s and %s: %w", l.files.Cert, l.files.Key, err)
		}
		cert = &c
	}
	var pool *x509.CertPool
	if l.files.CA != "" {
		pem, err := os.ReadFile(l.files.CA)
		if err != nil {
			return fmt.Errorf("reading CA: %w", err)
		}
		pool = x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return fmt.Errorf("CA file %s: %w", l.files.CA, errNoCert)
		}
	}
	l.cert, l.pool, l.stamps = cert, pool, stamps
	l.gen++
	return nil
}

var errNoCert = errors.New("no certificate in it")

// refresh reloads changed files. While they cannot be read, as between the
// writing of a certificate and its key, the old content stays in use.
func (l *Loader) refresh() (*tls.Certificate, *x509.CertPool, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.checked) >= checkEvery {
		l.checked = now
		stamps, err := l.current()
		if err == nil && stamps != l.stamps {
			if err = l.load(); err == nil {
				l.logf("reloaded %s %s", l.files.Cert, l.files.CA)
			}
		}
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != l.failed && text != "" {
			l.logf("keeping the certificates in use: %v", err)
		}
		l.failed = text
	}
	return l.cert, l.pool, l.gen
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
