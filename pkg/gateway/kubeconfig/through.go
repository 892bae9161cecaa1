// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"errors"
	"fmt"
	"net/url"

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
	e.Cluster.ProxyURL = proxy.String()
	return e, throughWarnings(target, proxy), nil
}

func throughWarnings(target *clientcmdapi.Cluster, proxy *url.URL) (warnings []string) {
	if u, err := url.Parse(target.Server); err == nil && gateway.IsLoopback(u.Hostname()) {
		warnings = append(warnings, fmt.Sprintf("the API server's address %s is a loopback address: Go programs ignore HTTPS_PROXY and ALL_PROXY for it, "+
			"so only this context's proxy-url leads through the proxy", u.Host))
	}
	if target.ProxyURL != "" {
		warnings = append(warnings, "the cluster has a proxy-url of its own, which this context replaces")
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
