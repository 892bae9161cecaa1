// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/internal/pemcheck"
)

// dialTimeout bounds connecting and the handshake, each.
const dialTimeout = 10 * time.Second

var errNoCA = errors.New("certificate-authority holds no certificate")

// roots are the CAs by which the API server is verified. They are read again for
// each connection, so that a CA that is being rotated, with an overlap in which both
// are trusted, needs no restart. While they cannot be read whole, as when half of the
// file is written, the last ones stay in use.
type roots struct {
	// read returns the CAs as PEM.
	read func() ([]byte, error)
	// from is the file that names them or holds them, for the log.
	from string

	mu     sync.Mutex
	last   *x509.CertPool
	failed string // the last problem; it is logged once
}

func (r *roots) current(ctx context.Context) *x509.CertPool {
	r.mu.Lock()
	defer r.mu.Unlock()
	pool, err := r.load()
	text := ""
	if err == nil {
		r.last = pool
	} else if text = err.Error(); text != r.failed {
		klog.FromContext(ctx).Error(err, "Cannot read the CAs of the API server: keeping those in use", "file", r.from)
	}
	r.failed = text
	return r.last
}

// load accepts CAs only as a whole: each part of them can be read.
func (r *roots) load() (*x509.CertPool, error) {
	pem, err := r.read()
	if err != nil {
		return nil, err
	}
	if err := pemcheck.Check(r.from, pem); err != nil {
		return nil, err
	}
	return poolOf(pem)
}

// firstPool returns the CAs to start with. A part that cannot be read is warned about only,
// because the others may be all that is needed.
func firstPool(ctx context.Context, from string, pem []byte) (*x509.CertPool, error) {
	if err := pemcheck.Check(from, pem); err != nil {
		klog.FromContext(ctx).Error(err, "A part of the CAs of the API server cannot be read", "file", from)
	}
	pool, err := poolOf(pem)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return pool, nil
}

func poolOf(pem []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errNoCA
	}
	return pool, nil
}

// kubeconfigCA reads the CAs of a kubeconfig's current cluster.
func kubeconfigCA(path string) func() ([]byte, error) {
	return func() ([]byte, error) {
		cl, _, err := readCurrent(path)
		if err != nil {
			return nil, err
		}
		return content(cl.CAData, cl.CAFile, filepath.Dir(path))
	}
}

// dialTLS connects with the CAs of this moment. Through a proxy the transport
// connects by itself, with those of the start.
func (c *Config) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	cfg := c.TLS.Clone()
	cfg.RootCAs = c.roots.current(ctx)
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		cfg.ServerName = host
	}
	raw, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}
