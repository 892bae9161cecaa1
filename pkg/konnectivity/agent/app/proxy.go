// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"
	"k8s.io/klog/v2"
)

// errProxyURL has no part of the variable's value: there may be a password in it.
var errProxyURL = errors.New("HTTPS_PROXY is not the URL of a proxy: set it to http://[user:password@]host:port and percent-encode special characters in the password")

// environmentProxy returns what chooses the HTTP proxy on the way to a server, as
// upstream's agent does: by HTTPS_PROXY and NO_PROXY, in upper or lower case.
func environmentProxy() (func(address string) (*url.URL, error), error) {
	env := httpproxy.FromEnvironment()
	if env.HTTPSProxy != "" {
		// httpproxy connects directly where the value does not parse, or takes its scheme for the host "http:".
		all := httpproxy.Config{HTTPSProxy: env.HTTPSProxy}
		if u, err := all.ProxyFunc()(&url.URL{Scheme: "https", Host: "server.invalid"}); err != nil || u == nil || u.Hostname() == "" || strings.HasSuffix(u.Host, ":") {
			return nil, errProxyURL
		}
	}
	choose := env.ProxyFunc()
	return func(address string) (*url.URL, error) {
		u, err := choose(&url.URL{Scheme: "https", Host: address})
		if err != nil {
			return nil, errProxyURL
		}
		if u != nil && u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("HTTPS_PROXY has scheme %q: use an HTTP proxy, http:// or https://, or name the server in NO_PROXY", u.Scheme)
		}
		return u, nil
	}, nil
}

// proxyTo is environmentProxy for the servers' address. What would fail at each attempt to
// connect fails at start.
func proxyTo(logger klog.Logger, address string) (func(address string) (*url.URL, error), error) {
	choose, err := environmentProxy()
	if err != nil {
		return nil, err
	}
	u, err := choose(address)
	if err == nil && u != nil {
		logger.V(1).Info("Connecting through a proxy", "address", address, "proxy", u.Scheme+"://"+u.Host)
	}
	return choose, err
}
