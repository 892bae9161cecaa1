// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// maxProxyAnswer bounds what a proxy may send as its answer to CONNECT, in bytes.
const maxProxyAnswer = 64 << 10

// ProxyError says that an HTTP proxy did not connect the agent to the server. It never
// has the proxy's user name and password.
type ProxyError struct {
	Proxy string // scheme://host:port
	Err   error
}

func (e *ProxyError) Error() string { return "proxy " + e.Proxy + ": " + e.Err.Error() }

func (e *ProxyError) Unwrap() error { return e.Err }

// proxyName is the proxy's URL without user name and password, for messages.
func proxyName(u *url.URL) string { return u.Scheme + "://" + u.Host }

// proxyAddress is host:port of the proxy.
func proxyAddress(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// dialTCP connects to a server's address, through the proxy if there is one for it.
func (a *Agent) dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	proxy, err := a.proxy()
	if err != nil {
		return nil, err
	}
	if proxy == nil {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
	nc, err := dialProxy(ctx, proxy, addr)
	if err != nil {
		return nil, &ProxyError{Proxy: proxyName(proxy), Err: err}
	}
	return nc, nil
}

// proxy is the proxy on the way to the servers, or nil.
func (a *Agent) proxy() (*url.URL, error) {
	if a.cfg.Proxy == nil {
		return nil, nil
	}
	return a.cfg.Proxy(a.cfg.Address)
}

// dialProxy connects to the proxy and has it connect to addr.
func dialProxy(ctx context.Context, proxy *url.URL, addr string) (net.Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", proxyAddress(proxy))
	if err != nil {
		return nil, fmt.Errorf("cannot connect: %w", err)
	}
	if proxy.Scheme == "https" {
		outer := tls.Client(nc, &tls.Config{ServerName: proxy.Hostname(), MinVersion: tls.VersionTLS12})
		if err := outer.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			return nil, fmt.Errorf("TLS with the proxy failed: %w", err)
		}
		nc = outer
	}
	if err := askProxy(ctx, nc, proxy, addr); err != nil {
		_ = nc.Close()
		return nil, err
	}
	return nc, nil
}

// askProxy sends CONNECT and reads the answer.
func askProxy(ctx context.Context, nc net.Conn, proxy *url.URL, addr string) error {
	if limit, ok := ctx.Deadline(); ok {
		_ = nc.SetDeadline(limit)
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	err := connectThrough(nc, proxy, addr)
	if !stop() {
		return errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return err
	}
	return nc.SetDeadline(time.Time{})
}

func connectThrough(nc net.Conn, proxy *url.URL, addr string) error {
	head := "CONNECT " + addr + " HTTP/1.1\r\nHost: " + addr + "\r\nUser-Agent: konnectivity-agent\r\n"
	if u := proxy.User; u != nil {
		password, _ := u.Password()
		head += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)) + "\r\n"
	}
	if _, err := io.WriteString(nc, head+"\r\n"); err != nil {
		return fmt.Errorf("cannot send CONNECT: %w", err)
	}
	r := bufio.NewReader(io.LimitReader(nc, maxProxyAnswer))
	// The body is neither read nor closed: to close it is to read it, and the connection ends instead.
	res, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // see above
	if err != nil {
		return fmt.Errorf("no valid answer to CONNECT %s: %w: check that it is an HTTP proxy", addr, err)
	}
	if res.StatusCode/100 != 2 { // the body is not read: the connection is closed
		return fmt.Errorf("refused CONNECT %s: %d %s: %s", addr, res.StatusCode, http.StatusText(res.StatusCode), proxyHint(res.StatusCode))
	}
	if r.Buffered() > 0 { // in TLS the client speaks first, so these bytes are not the server's
		return fmt.Errorf("sent %d bytes behind its answer to CONNECT %s: check that it is an HTTP proxy", r.Buffered(), addr)
	}
	return nil
}

// proxyHint says what to do about a proxy's refusal.
func proxyHint(status int) string {
	switch status {
	case http.StatusProxyAuthRequired:
		return "set the user name and password in HTTPS_PROXY (http://user:password@host:port); only Basic authentication is supported"
	case http.StatusForbidden, http.StatusMethodNotAllowed:
		return "allow CONNECT to this host and port at the proxy, or name the host in NO_PROXY"
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return "check that the proxy can resolve and reach the server, or name the host in NO_PROXY"
	}
	return "check HTTPS_PROXY, or name the host in NO_PROXY"
}
