// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// ParseProxyURL reads a proxy-url as client-go understands it. Its errors do not repeat
// the URL, which may hold a password.
func ParseProxyURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("the proxy URL is not valid (it is not shown, because it may hold a password): write it as socks5://HOST:PORT or https://HOST:PORT, with special characters of user and password percent-encoded")
	}
	switch {
	case u.Scheme == "socks5h":
		return nil, fmt.Errorf("the proxy URL %s: client-go does not know the scheme socks5h in a kubeconfig: write socks5, for which client-go lets the proxy resolve names as well", u.Redacted())
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5":
		return nil, fmt.Errorf("the scheme of the proxy URL is %q: client-go knows http, https and socks5", u.Scheme)
	case u.Hostname() == "":
		return nil, fmt.Errorf("the proxy URL %s names no host: write it as socks5://HOST:PORT", u.Redacted())
	}
	return u, nil
}

// Through makes an entry that reaches the API server of a context with its credentials
// through a proxy. The warnings tell what the user may not expect; they hold no password.
func Through(source *clientcmdapi.Config, context, name string, proxy *url.URL) (e Entry, warnings []string, err error) {
	from := source.Contexts[context]
	if from == nil {
		return e, nil, fmt.Errorf("there is no context %q in the kubeconfig: choose another with --context", context)
	}
	target := source.Clusters[from.Cluster]
	if target == nil {
		return e, nil, fmt.Errorf("context %q names the cluster %q, which the kubeconfig does not have: correct the kubeconfig", context, from.Cluster)
	}
	e = Entry{Name: name, Namespace: from.Namespace, Cluster: target.DeepCopy(), User: clientcmdapi.NewAuthInfo()}
	if user := source.AuthInfos[from.AuthInfo]; user != nil {
		e.User = user.DeepCopy()
	}
	if err := checkPaths(context, e); err != nil {
		return e, nil, err
	}
	e.Cluster.ProxyURL = proxy.String()
	return e, throughWarnings(target, proxy), nil
}

// checkPaths refuses paths that mean another file in another kubeconfig: they are relative to
// the file in which they are, and kubeconfigs that are read from files have none.
func checkPaths(context string, e Entry) error {
	for _, path := range append(clientcmd.GetClusterFileReferences(e.Cluster), clientcmd.GetAuthInfoFileReferences(e.User)...) {
		if *path != "" && !filepath.IsAbs(*path) {
			return fmt.Errorf("context %q names the file %s by a relative path, which would be another one in the new kubeconfig: write the absolute path", context, *path)
		}
	}
	return nil
}

// CheckProxyCertificate reports whether a client of the entry can verify the certificate of its
// https proxy: client-go does so by the cluster's certificate authority and tls-server-name. chain
// begins with the proxy's own certificate.
func (e Entry) CheckProxyCertificate(chain []*x509.Certificate) error {
	proxy, err := url.Parse(e.Cluster.ProxyURL)
	if err != nil || proxy.Scheme != "https" || e.Cluster.InsecureSkipTLSVerify || len(chain) == 0 {
		return nil //nolint:nilerr // the URL is one that Through wrote
	}
	o := x509.VerifyOptions{DNSName: cmp.Or(e.Cluster.TLSServerName, proxy.Hostname()), Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	ca := e.Cluster.CertificateAuthorityData
	if len(ca) == 0 && e.Cluster.CertificateAuthority != "" {
		if ca, err = os.ReadFile(e.Cluster.CertificateAuthority); err != nil {
			return fmt.Errorf("read the cluster's certificate authority: %w: correct the kubeconfig", err)
		}
	}
	if len(ca) > 0 { // otherwise those of the system
		o.Roots = x509.NewCertPool()
		o.Roots.AppendCertsFromPEM(ca)
	}
	if _, err := chain[0].Verify(o); err != nil {
		return fmt.Errorf("the context %s could not work: client-go verifies the proxy's certificate by the cluster's certificate authority, for the name %s: %w: "+
			"serve with a certificate of that authority and for that name, or serve on loopback without TLS", e.Name, o.DNSName, err)
	}
	return nil
}

func throughWarnings(target *clientcmdapi.Cluster, proxy *url.URL) (warnings []string) {
	if u, err := url.Parse(target.Server); err == nil && gateway.IsLoopback(u.Hostname()) {
		warnings = append(warnings, fmt.Sprintf("the API server's address %s is a loopback address: Go programs ignore HTTPS_PROXY and ALL_PROXY for it, "+
			"so only this context's proxy-url leads through the proxy", u.Host))
	}
	if target.ProxyURL != "" {
		warnings = append(warnings, "the cluster has its own proxy-url, which this context replaces")
	}
	if proxy.Scheme == "https" {
		if target.TLSServerName != "" {
			warnings = append(warnings, fmt.Sprintf("client-go also uses the cluster's tls-server-name %q to verify the proxy's certificate, which has to hold that name", target.TLSServerName))
		}
		if len(target.CertificateAuthorityData) > 0 || target.CertificateAuthority != "" {
			warnings = append(warnings, "client-go verifies the proxy's certificate with the cluster's certificate authority, which has to have signed it")
		}
	}
	return warnings
}
