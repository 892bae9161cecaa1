// Package nodegate is the door to the simulated nodes of an embedded cluster.
//
// kwok, which plays the kubelets, asks nobody who they are, and an exec through
// it runs as a process of the user. A real kubelet lets only the API server in,
// and so does the gate: it listens where nodes are reached, demands the API
// server's client certificate, and passes requests on to kwok on loopback.
// kwok itself answers logs, exec, attach and port-forward for one namespace
// only, whose name is a secret of the gate and kwok. The gate puts it in place
// of the real one, so that nobody else on the machine can use kwok's port.
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
	"time"
)

// Config is what the gate needs to know, kept in a file that only its owner may read.
type Config struct {
	// Listen is host:port to listen on.
	Listen string `json:"listen"`
	// Backend is host:port of kwok.
	Backend string `json:"backend"`
	// CertFile and KeyFile are the nodes' serving certificate.
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
	// ClientCAFile verifies clients, and ClientName is the common name that one
	// has to have: the cluster's CA signs for many who may not exec.
	ClientCAFile string `json:"clientCAFile"`
	ClientName   string `json:"clientName"`
	// Secret takes the place of the namespace.
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
	server := &http.Server{Handler: c.Handler(), TLSConfig: tlsConfig, ReadHeaderTimeout: 30 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
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

// Handler passes requests on to the backend. It trusts the connection; Run
// sees to that.
func (c Config) Handler() http.Handler {
	return &httputil.ReverseProxy{
		FlushInterval:  -1, // a followed log is shown as it comes
		ModifyResponse: c.hideSecret,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: c.Backend})
			r.Out.URL.Path, r.Out.URL.RawPath = c.rewrite(r.In.URL.Path), ""
		},
	}
}

// maxError is how much of an answer that reports an error is passed on.
const maxError = 64 << 10

// hideSecret takes the secret out of errors, in which kwok quotes what it was asked for.
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

// rewrite puts the secret in the place of the namespace in the kubelet's paths
// /exec/NAMESPACE/POD/..., and leaves all other paths alone.
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
