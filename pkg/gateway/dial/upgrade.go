// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"

	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
)

const spdyOverWebSocket = "SPDY/3.1+" + portforward.PortForwardProtocolV1Name

// upgrader opens streaming connections to the API server: SPDY in a WebSocket as kubectl
// does, or plain SPDY where that is refused.
//
// client-go's own dialers take no context, and they ignore the Dial of a rest.Config, without
// which an API server behind a bastion cannot be reached.
type upgrader struct {
	webSocket websocket.Dialer
	spdy      *http.Transport
	config    *rest.Config
}

func newUpgrader(config *rest.Config) (*upgrader, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	proxy := config.Proxy
	if proxy == nil {
		proxy = utilnet.NewProxierWithNoProxyCIDR(http.ProxyFromEnvironment)
	}
	dial := config.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	return &upgrader{
		config: config,
		webSocket: websocket.Dialer{
			NetDialContext: dial, Proxy: proxy, TLSClientConfig: tlsConfig,
			ReadBufferSize: chunkSize + 1024, WriteBufferSize: chunkSize + 1024,
		},
		// No HTTP/2: it has no upgrades.
		spdy: &http.Transport{DialContext: dial, Proxy: proxy, TLSClientConfig: tlsConfig, DisableKeepAlives: true, Protocols: http1()},
	}, nil
}

func http1() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	return &p
}

// dial opens a connection that carries SPDY.
func (u *upgrader) dial(ctx context.Context, to *url.URL) (net.Conn, error) {
	c, err := u.dialWebSocket(ctx, to)
	var refused *upgradeRefusedError
	if err == nil || !errors.As(err, &refused) || ctx.Err() != nil {
		return c, err
	}
	switch refused.status {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusTooManyRequests:
		return nil, err // SPDY would fare no better
	}
	c, spdyErr := u.dialSPDY(ctx, to)
	if spdyErr == nil {
		return c, nil
	}
	if ctx.Err() == nil && !errors.As(spdyErr, &refused) {
		return nil, err // the first answer came from the API server
	}
	return nil, spdyErr
}

func (u *upgrader) dialWebSocket(ctx context.Context, to *url.URL) (net.Conn, error) {
	conn, err := u.openWebSocket(ctx, to, spdyOverWebSocket)
	if err != nil {
		return nil, err
	}
	return portforward.NewTunnelingConnection("client", conn), nil
}

// openWebSocket opens a WebSocket with a subprotocol.
func (u *upgrader) openWebSocket(ctx context.Context, to *url.URL, protocol string) (conn *websocket.Conn, err error) {
	dialer := u.webSocket
	dialer.Subprotocols = []string{protocol}
	err = u.roundTrip(ctx, http.MethodGet, to, func(req *http.Request) (*http.Response, error) {
		url := *req.URL
		url.Scheme = strings.Replace(url.Scheme, "http", "ws", 1)
		c, resp, err := dialer.DialContext(req.Context(), url.String(), req.Header)
		if err != nil {
			if resp != nil && errors.Is(err, websocket.ErrBadHandshake) {
				return nil, readRefusal(resp)
			}
			return nil, err
		}
		if c.Subprotocol() != protocol {
			_ = c.Close()
			return nil, &upgradeRefusedError{status: resp.StatusCode, err: fmt.Errorf("the API server chose the protocol %q", c.Subprotocol())}
		}
		conn = c
		return resp, nil
	})
	return conn, err
}

func (u *upgrader) dialSPDY(ctx context.Context, to *url.URL) (net.Conn, error) {
	var conn net.Conn
	// The response's body is the connection: it must outlive the context of the dial.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	err := u.roundTrip(life, http.MethodPost, to, func(req *http.Request) (*http.Response, error) {
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "SPDY/3.1")
		req.Header.Set("X-Stream-Protocol-Version", portforward.PortForwardProtocolV1Name)
		resp, err := u.spdy.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		body, ok := resp.Body.(io.ReadWriteCloser)
		if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
			return nil, readRefusal(resp)
		}
		conn = &bodyConn{ReadWriteCloser: body, cancel: cancel}
		return resp, nil
	})
	if err != nil {
		cancel()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	if !stop() {
		_ = conn.Close()
		return nil, context.Cause(ctx)
	}
	return conn, nil
}

// roundTrip sends a request through the wrappers that add credentials.
func (u *upgrader) roundTrip(ctx context.Context, method string, to *url.URL, send roundTripper) error {
	req, err := http.NewRequestWithContext(ctx, method, to.String(), nil)
	if err != nil {
		return err
	}
	traceparent.From(ctx).Set(req.Header)
	rt, err := rest.HTTPWrappersForConfig(u.config, send)
	if err != nil {
		return err
	}
	_, err = rt.RoundTrip(req) //nolint:bodyclose // the connection is in the caller's hands
	return err
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip sends a request.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// upgradeRefusedError is an answer other than the switch of protocols.
type upgradeRefusedError struct {
	status int
	err    error
}

// Error returns the API server's answer.
func (r *upgradeRefusedError) Error() string { return r.err.Error() }

// Unwrap returns it as an error of the API, if it is one.
func (r *upgradeRefusedError) Unwrap() error { return r.err }

func readRefusal(resp *http.Response) error {
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &metav1.Status{})
	if status, ok := obj.(*metav1.Status); err == nil && ok && status.Status != metav1.StatusSuccess {
		return &upgradeRefusedError{resp.StatusCode, &apierrors.StatusError{ErrStatus: *status}}
	}
	return &upgradeRefusedError{resp.StatusCode, apierrors.NewGenericServerResponse(resp.StatusCode, "upgrade", schema.GroupResource{Resource: "pods"}, "", string(body), 0, true)}
}

// bodyConn is a connection after an upgrade.
type bodyConn struct {
	io.ReadWriteCloser
	cancel context.CancelFunc
}

// Close closes the connection.
func (c *bodyConn) Close() error {
	defer c.cancel()
	return c.ReadWriteCloser.Close()
}

// LocalAddr is unknown.
func (c *bodyConn) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero} }

// RemoteAddr is unknown.
func (c *bodyConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero} }

// SetDeadline is not supported.
func (c *bodyConn) SetDeadline(time.Time) error { return errors.ErrUnsupported }

// SetReadDeadline is not supported.
func (c *bodyConn) SetReadDeadline(time.Time) error { return errors.ErrUnsupported }

// SetWriteDeadline is not supported.
func (c *bodyConn) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }
