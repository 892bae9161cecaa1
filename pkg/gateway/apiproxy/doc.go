// SPDX-License-Identifier: Apache-2.0

// Package apiproxy is an HTTP proxy to the Kubernetes API with the rights of a kubeconfig,
// as kubectl proxy is one.
//
// A request passes the checks of [Filter] (the Host and Origin headers, the method, the
// path), is counted and logged, and then goes to the API server. [New] makes the handler,
// [Listen] and [ListenUnix] the listeners, and [Handler.Serve] runs it until its context
// ends, with time for what is open.
//
// The proxy is httputil.ReverseProxy with two transports of client-go: one for requests,
// with HTTP/2, and one for upgrades such as exec, with HTTP/1.1. Both are http.Transports,
// so the proxy-url of a kubeconfig, the proxy's environment variables, client certificates
// and credential plugins hold for both. The UpgradeAwareHandler of apimachinery, which
// kubectl proxy uses, opens the connections of upgrades itself and does not know proxies:
// docs/adr/0005-reverse-proxy.md.
package apiproxy
