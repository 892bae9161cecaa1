// Package kube is a small client for the few calls to kube-apiserver that the
// tunnel makes: TokenReview and Lease. The usual client would be most of the
// memory of an idle server.
package kube

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Config says how to reach an API server.
type Config struct {
	Host      string // https://host:port
	TLS       *tls.Config
	TokenFile string
	Token     string
	Username  string
	Password  string
	// QPS and Burst bound the rate of requests; defaults 5 and 10.
	QPS   float32
	Burst int
}

type kubeconfig struct {
	CurrentContext string `json:"current-context"`
	Contexts       []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster string `json:"cluster"`
			User    string `json:"user"`
		} `json:"context"`
	} `json:"contexts"`
	Clusters []struct {
		Name    string  `json:"name"`
		Cluster cluster `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		Name string `json:"name"`
		User user   `json:"user"`
	} `json:"users"`
}

type cluster struct {
	Server        string `json:"server"`
	CAData        string `json:"certificate-authority-data"`
	CAFile        string `json:"certificate-authority"`
	Insecure      bool   `json:"insecure-skip-tls-verify"`
	TLSServerName string `json:"tls-server-name"`
	ProxyURL      string `json:"proxy-url"`
}

type user struct {
	CertData     string         `json:"client-certificate-data"`
	CertFile     string         `json:"client-certificate"`
	KeyData      string         `json:"client-key-data"`
	KeyFile      string         `json:"client-key"`
	Token        string         `json:"token"`
	TokenFile    string         `json:"tokenFile"`
	Username     string         `json:"username"`
	Password     string         `json:"password"`
	Exec         map[string]any `json:"exec"`
	AuthProvider map[string]any `json:"auth-provider"`
	Impersonate  string         `json:"as"`
}

// ErrUnsupported reports a kubeconfig that needs more than this client can do.
var ErrUnsupported = errors.New("kubeconfig uses a feature that is not supported here")

// Load reads a kubeconfig. An empty path means the service account of the Pod.
func Load(path string) (*Config, error) {
	if path == "" {
		return inCluster("/var/run/secrets/kubernetes.io/serviceaccount")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	var k kubeconfig
	if err := yaml.Unmarshal(b, &k); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	cl, us, err := k.current()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return build(cl, us, filepath.Dir(path))
}

func (k *kubeconfig) current() (*cluster, *user, error) {
	for _, c := range k.Contexts {
		if c.Name != k.CurrentContext {
			continue
		}
		var cl *cluster
		us := &user{}
		for i := range k.Clusters {
			if k.Clusters[i].Name == c.Context.Cluster {
				cl = &k.Clusters[i].Cluster
			}
		}
		for i := range k.Users {
			if k.Users[i].Name == c.Context.User {
				us = &k.Users[i].User
			}
		}
		if cl == nil || cl.Server == "" {
			return nil, nil, fmt.Errorf("context %q has no cluster", c.Name)
		}
		return cl, us, nil
	}
	return nil, nil, fmt.Errorf("current context %q does not exist", k.CurrentContext)
}

func build(cl *cluster, us *user, dir string) (*Config, error) {
	if us.Exec != nil || us.AuthProvider != nil || us.Impersonate != "" || cl.ProxyURL != "" {
		return nil, fmt.Errorf("%w: use a client certificate or a token", ErrUnsupported)
	}
	host := cl.Server
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	t := &tls.Config{ServerName: cl.TLSServerName, InsecureSkipVerify: cl.Insecure, MinVersion: tls.VersionTLS12} //nolint:gosec // as the file says
	ca, err := content(cl.CAData, cl.CAFile, dir)
	if err != nil {
		return nil, err
	}
	if ca != nil {
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("certificate-authority holds no certificate")
		}
	}
	if err := clientCert(t, us, dir); err != nil {
		return nil, err
	}
	return &Config{Host: strings.TrimSuffix(host, "/"), TLS: t, Token: us.Token, TokenFile: inDir(us.TokenFile, dir), Username: us.Username, Password: us.Password}, nil
}

// clientCert makes the certificate be read for each handshake, so that a renewed
// one is used.
func clientCert(t *tls.Config, us *user, dir string) error {
	load := func() (*tls.Certificate, error) {
		cert, err := content(us.CertData, us.CertFile, dir)
		if err != nil || cert == nil {
			return &tls.Certificate{}, err
		}
		key, err := content(us.KeyData, us.KeyFile, dir)
		if err != nil {
			return nil, err
		}
		c, err := tls.X509KeyPair(cert, key)
		return &c, err
	}
	if _, err := load(); err != nil {
		return fmt.Errorf("client certificate: %w", err)
	}
	t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return nil
}

func content(data, file, dir string) ([]byte, error) {
	if data != "" {
		return base64.StdEncoding.DecodeString(data)
	}
	if file == "" {
		return nil, nil
	}
	return os.ReadFile(inDir(file, dir))
}

func inDir(file, dir string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(dir, file)
}

func inCluster(dir string) (*Config, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("no kubeconfig given and not running in a Pod")
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &Config{Host: "https://" + net.JoinHostPort(host, port), TokenFile: filepath.Join(dir, "token"),
		TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}, nil
}

// transport returns the HTTP client for a Config.
func (c *Config) transport() *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: c.TLS, ForceAttemptHTTP2: false, MaxIdleConnsPerHost: 4,
		IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
	}}
}
