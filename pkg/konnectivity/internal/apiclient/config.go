// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Config describes how to connect to an API server.
type Config struct {
	Host      string // https://host:port
	TLS       *tls.Config
	TokenFile string
	Token     string
	Username  string
	Password  string
	// Impersonate are the headers that make the API server treat requests as those
	// of another user.
	Impersonate http.Header
	// Proxy is the proxy to Host. nil uses the proxy of the environment variables.
	Proxy *url.URL

	exec  *plugin // provides the credentials, if set
	roots *roots  // replaces the root CAs of TLS, if set
	// QPS and Burst limit the rate of requests; defaults 5 and 10.
	QPS   float32
	Burst int
}

func inCluster(ctx context.Context, dir string) (*Config, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("no kubeconfig given and not running in a Pod")
	}
	path := filepath.Join(dir, "ca.crt")
	read := func() ([]byte, error) { return os.ReadFile(path) }
	ca, err := read()
	if err != nil {
		return nil, err
	}
	pool, err := firstPool(ctx, path, ca)
	if err != nil {
		return nil, err
	}
	return &Config{roots: &roots{read: read, from: path, last: pool}, Host: "https://" + net.JoinHostPort(host, port), TokenFile: filepath.Join(dir, "token"),
		TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}, nil
}

// transport returns the HTTP client for a Config.
func (c *Config) transport() *http.Client {
	proxy := http.ProxyFromEnvironment
	if c.Proxy != nil {
		proxy = http.ProxyURL(c.Proxy)
	}
	t := &http.Transport{
		Proxy: proxy, TLSClientConfig: c.TLS, ForceAttemptHTTP2: false, MaxIdleConnsPerHost: 4,
		IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: dialTimeout,
		DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
	}
	if c.roots != nil {
		t.DialTLSContext = c.dialTLS
	}
	return &http.Client{Transport: t}
}
