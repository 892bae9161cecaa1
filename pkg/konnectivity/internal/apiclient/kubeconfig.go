// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"
)

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
	CertData         string              `json:"client-certificate-data"`
	CertFile         string              `json:"client-certificate"`
	KeyData          string              `json:"client-key-data"`
	KeyFile          string              `json:"client-key"`
	Token            string              `json:"token"`
	TokenFile        string              `json:"tokenFile"`
	Username         string              `json:"username"`
	Password         string              `json:"password"`
	Exec             *execConfig         `json:"exec"`
	AuthProvider     map[string]any      `json:"auth-provider"`
	Impersonate      string              `json:"as"`
	ImpersonateUID   string              `json:"as-uid"`
	ImpersonateGroup []string            `json:"as-groups"`
	ImpersonateExtra map[string][]string `json:"as-user-extra"`
}

// ErrUnsupported reports a kubeconfig that needs a feature that this client does
// not support.
var ErrUnsupported = errors.New("kubeconfig uses a feature that is not supported here")

// Load reads a kubeconfig. With an empty path, it uses the service account of
// the Pod. ctx carries the logger.
func Load(ctx context.Context, path string) (*Config, error) {
	if path == "" {
		return inCluster(ctx, "/var/run/secrets/kubernetes.io/serviceaccount")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	cfg, us, err := parse(b, filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if cfg.TLS.RootCAs != nil {
		cfg.roots = &roots{read: kubeconfigCA(path), from: path, last: cfg.TLS.RootCAs}
	}
	if us.CertData != "" {
		cfg.TLS.GetClientCertificate = rereading(path, us.CertData)
	}
	return cfg, nil
}

// parse reads a kubeconfig. Its relative paths are relative to dir.
func parse(b []byte, dir string) (*Config, *user, error) {
	cl, us, err := current(b)
	if err != nil {
		return nil, nil, err
	}
	cfg, err := build(cl, us, dir)
	return cfg, us, err
}

// readCurrent calls current with the present content of a file.
func readCurrent(path string) (*cluster, *user, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	return current(b)
}

// current returns the cluster and the user of a kubeconfig's current context.
func current(b []byte) (*cluster, *user, error) {
	var k kubeconfig
	if err := yaml.Unmarshal(b, &k); err != nil {
		return nil, nil, err
	}
	return k.current()
}

// rereading returns a function that reads the client certificate from the
// kubeconfig for each handshake, so a renewed certificate is used without a
// restart. While the file cannot be read, for example because it is half
// written, the last certificate stays in use.
func rereading(path, certData string) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	var mu sync.Mutex
	var last *tls.Certificate
	read := func() (*tls.Certificate, error) {
		_, us, err := readCurrent(path)
		if err != nil {
			return nil, err
		}
		if us.CertData == certData && last != nil {
			return last, nil
		}
		cert, err := base64.StdEncoding.DecodeString(us.CertData)
		if err != nil {
			return nil, err
		}
		key, err := content(us.KeyData, us.KeyFile, filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		c, err := tls.X509KeyPair(cert, key)
		if err == nil {
			certData = us.CertData
		}
		return &c, err
	}
	if c, err := read(); err == nil {
		last = c
	}
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		c, err := read()
		if err == nil {
			last = c
		} else if last == nil {
			return nil, err
		}
		return last, nil
	}
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
	if us.AuthProvider != nil {
		return nil, fmt.Errorf("%w: auth-provider, which Kubernetes has removed too; use exec, a client certificate or a token", ErrUnsupported)
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
		if t.RootCAs, err = poolOf(ca); err != nil {
			return nil, err
		}
	}
	if err := clientCert(t, us, dir); err != nil {
		return nil, err
	}
	cfg := &Config{Host: strings.TrimSuffix(host, "/"), TLS: t, Token: us.Token, TokenFile: inDir(us.TokenFile, dir),
		Username: us.Username, Password: us.Password, Impersonate: us.impersonation()}
	if cl.ProxyURL != "" {
		if cfg.Proxy, err = parseProxyURL(cl.ProxyURL); err != nil {
			return nil, err
		}
	}
	if us.Exec != nil {
		if cfg.exec, err = newPlugin(us.Exec, cl, ca, dir); err != nil {
			return nil, err
		}
		t.GetClientCertificate = cfg.exec.certificate
	}
	return cfg, nil
}

// parseProxyURL accepts the schemes that client-go knows. Its errors, which go into logs, do not repeat the URL: it may hold a password.
func parseProxyURL(text string) (*url.URL, error) {
	const hint = "write it as http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT, and percent-encode special characters of user and password"
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("read proxy-url: it is no URL (it is not shown, because it may hold a password): " + hint)
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5":
		return nil, errors.New("read proxy-url: its scheme is none of http, https and socks5: " + hint)
	case u.Hostname() == "":
		return nil, errors.New("read proxy-url: it names no host: " + hint)
	}
	return u, nil
}

// impersonation returns the impersonation headers of the Kubernetes API.
func (us *user) impersonation() http.Header {
	h := http.Header{}
	if us.Impersonate != "" {
		h.Set("Impersonate-User", us.Impersonate)
	}
	if us.ImpersonateUID != "" {
		h.Set("Impersonate-Uid", us.ImpersonateUID)
	}
	for _, g := range us.ImpersonateGroup {
		h.Add("Impersonate-Group", g)
	}
	for k, vs := range us.ImpersonateExtra {
		for _, v := range vs {
			h.Add("Impersonate-Extra-"+url.PathEscape(k), v)
		}
	}
	return h
}

// clientCert makes TLS read the certificate for each handshake, so a renewed one
// is used.
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
	last, err := load()
	if err != nil {
		return fmt.Errorf("client certificate: %w", err)
	}
	var mu sync.Mutex
	t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if c, err := load(); err == nil {
			last = c // on an error keep the last pair: one of the two files may be replaced before the other
		}
		return last, nil
	}
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
