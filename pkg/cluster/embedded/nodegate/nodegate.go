// SPDX-License-Identifier: Apache-2.0

// Package nodegate protects the simulated nodes of an embedded cluster.
//
// kwok simulates the kubelets. It does not authenticate clients, and an exec
// through it runs as a process of the user. A real kubelet accepts only the API
// server, and so does the gate: it listens on the nodes' address, requires the
// API server's client certificate, and forwards requests to kwok on loopback.
// kwok itself serves logs, exec, attach and port-forward for one namespace
// only. The name of that namespace is a secret of the gate and kwok, and the
// gate substitutes it for the real namespace. So no other user of the machine
// can use kwok's port.
package nodegate

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
)

// Config is the gate's configuration, kept in a file that only its owner can
// read.
type Config struct {
	// Listen is the host:port to listen on.
	Listen string `json:"listen"`
	// Backend is kwok's host:port.
	Backend string `json:"backend"`
	// CertFile and KeyFile are the nodes' serving certificate.
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
	// ClientCAFile verifies clients, and ClientName is the common name that a
	// client must have: the cluster's CA also signs certificates of clients
	// that may not exec.
	ClientCAFile string `json:"clientCAFile"`
	ClientName   string `json:"clientName"`
	// Secret replaces the namespace.
	Secret string `json:"secret"`
}

// Run serves until ctx ends.
func Run(ctx context.Context, c Config) error {
	tlsConfig, err := c.tls()
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("node gate: %w", err)
	}
	server := httplimits.Long.Server(c.Handler())      // clients follow logs for hours
	server.MaxHeaderBytes = http.DefaultMaxHeaderBytes // as a kubelet's: the URL of an exec contains the command
	server.TLSConfig = tlsConfig
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ServeTLS(httplimits.Long.Listener(listener), "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("node gate: %w", err)
	}
	return nil
}

func (c Config) tls() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("node gate: loading the nodes' certificate: %w", err)
	}
	pem, err := os.ReadFile(c.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("node gate: reading the clients' CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("node gate: %s holds no certificate", c.ClientCAFile)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		// Streams are upgraded HTTP/1.1 connections.
		NextProtos: []string{"http/1.1"},
		VerifyConnection: func(state tls.ConnectionState) error {
			if name := state.PeerCertificates[0].Subject.CommonName; name != c.ClientName {
				return fmt.Errorf("client %q may not speak to nodes", name)
			}
			return nil
		},
	}, nil
}

// Handler forwards requests to the backend. It does not authenticate the
// connection; Run does that.
func (c Config) Handler() http.Handler {
	return &httputil.ReverseProxy{
		FlushInterval:  -1, // show a followed log without delay
		ModifyResponse: c.hideSecret,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: c.Backend})
			r.Out.URL.Path, r.Out.URL.RawPath = c.rewrite(r.In.URL.Path), ""
		},
	}
}

// maxError is how much of an error response is passed on.
const maxError = 64 << 10

// hideSecret removes the secret from error responses, in which kwok quotes the
// request.
func (c Config) hideSecret(resp *http.Response) error {
	if resp.StatusCode < http.StatusBadRequest {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxError))
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	body = bytes.ReplaceAll(body, []byte(c.Secret), []byte("NAMESPACE"))
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// rewrite replaces the namespace by the secret in the kubelet's paths
// /exec/NAMESPACE/POD/..., and leaves all other paths unchanged.
func (c Config) rewrite(path string) string {
	parts := strings.SplitN(path, "/", 4)
	if len(parts) < 4 || parts[0] != "" {
		return path
	}
	switch parts[1] {
	case "exec", "attach", "portForward", "containerLogs":
		parts[2] = c.Secret
	}
	return strings.Join(parts, "/")
}
