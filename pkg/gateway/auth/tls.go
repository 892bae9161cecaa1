// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/internal/pemcheck"
	"github.com/fairlead-dev/fairlead/pkg/internal/secretfile"
)

// TLSFiles are the PEM files of a listener. ClientCA may be empty.
type TLSFiles struct{ Cert, Key, ClientCA string }

// NewTLS returns the configuration of a listener. It reads the files again when they
// change, until ctx ends. Client certificates are optional for TLS, so that clients can
// prove who they are in another way; those that are presented must be valid.
func NewTLS(ctx context.Context, f TLSFiles) (*tls.Config, error) {
	serving, err := dynamiccertificates.NewDynamicServingContentFromFiles("socks5", f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	if err := secretfile.CheckOwn(f.Key); err != nil {
		klog.InfoS("The key of the serving certificate is not protected", "err", err)
	}
	base := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	var ca *dynamiccertificates.DynamicFileCAContent
	if f.ClientCA != "" {
		if ca, err = dynamiccertificates.NewDynamicCAContentFromFile("socks5-client-ca", f.ClientCA); err != nil {
			return nil, fmt.Errorf("client CA: %w", err)
		}
		base.ClientAuth = tls.VerifyClientCertIfGiven
		if err := pemcheck.Check(f.ClientCA, ca.CurrentCABundleContent()); err != nil {
			klog.InfoS("Using only a part of the client CA file", "err", err)
		}
		go ca.Run(ctx, 1)
	}
	go serving.Run(ctx, 1)
	var pair keyPair
	var roots clientCAs
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := base.Clone()
		c.GetConfigForClient = nil
		cert, err := pair.parse(serving.CurrentCertKeyContent())
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{cert}
		if ca != nil {
			if c.ClientCAs, err = roots.parse(f.ClientCA, ca.CurrentCABundleContent()); err != nil {
				return nil, err
			}
		}
		return c, nil
	}
	return base, nil
}

// clientCAs keeps the last CAs of which each block could be read. A file that is read while
// it is written would otherwise lock out the clients of the CA that is missing.
type clientCAs struct {
	mu     sync.Mutex
	bundle []byte
	parsed *x509.CertPool
}

func (c *clientCAs) parse(path string, bundle []byte) (*x509.CertPool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parsed != nil {
		if bytes.Equal(c.bundle, bundle) {
			return c.parsed, nil
		}
		if err := pemcheck.Check(path, bundle); err != nil {
			klog.ErrorS(err, "Keeping the client CAs that were loaded before")
			c.bundle = bundle // logged once
			return c.parsed, nil
		}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("%s holds no CA certificate", path)
	}
	c.bundle, c.parsed = bundle, pool
	return pool, nil
}

// keyPair keeps the last certificate, so that it is not parsed for each connection.
type keyPair struct {
	mu        sync.Mutex
	cert, key []byte
	parsed    tls.Certificate
}

func (p *keyPair) parse(cert, key []byte) (tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if bytes.Equal(p.cert, cert) && bytes.Equal(p.key, key) {
		return p.parsed, nil
	}
	parsed, err := tls.X509KeyPair(cert, key)
	if err == nil {
		p.cert, p.key, p.parsed = cert, key, parsed
	}
	return parsed, err
}
