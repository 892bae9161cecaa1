// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// Probe is an HTTP or HTTPS GET that returns a 2xx status once a program is
// ready.
type Probe struct {
	// URL is the URL to get. With the scheme tcp, as in tcp://127.0.0.1:80, the
	// probe succeeds if a process listens on the port.
	URL string `json:"url"`
	// CAFile verifies the server of an https URL. Without it the certificate is
	// not verified: programs that sign their own certificate at start have none
	// that could be verified, and the response is a plain yes or no from
	// loopback.
	CAFile string `json:"caFile,omitempty"`
}

// probeTimeout bounds one request. Until a program is ready it is probed every
// probeInterval, and then every watchInterval. It is no longer ready after
// probeFailures consecutive failures.
const (
	probeTimeout  = 2 * time.Second
	probeInterval = 100 * time.Millisecond
	watchInterval = 5 * time.Second
	probeFailures = 3
)

// client returns an HTTP client that opens a new connection for every request,
// so that a probe never reaches a process that has been replaced.
func (p *Probe) client() (*http.Client, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.CAFile == "" {
		conf.InsecureSkipVerify = true
	} else {
		pem, err := os.ReadFile(p.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading the CA of the readiness probe: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the CA of the readiness probe, %s, holds no certificate", p.CAFile)
		}
	}
	return &http.Client{
		Timeout:   probeTimeout,
		Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true, Proxy: nil},
	}, nil
}

// Check probes once.
func (p *Probe) Check(ctx context.Context) error {
	if address, ok := strings.CutPrefix(p.URL, "tcp://"); ok {
		conn, err := (&net.Dialer{Timeout: probeTimeout}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	client, err := p.client()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s answered %s", p.URL, resp.Status)
	}
	return nil
}
