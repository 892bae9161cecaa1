// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/internal/pemcheck"
	"github.com/fairlead-dev/fairlead/pkg/internal/secretfile"
)

// Protocols of a konnectivity-server, as its flag --mode names them.
const (
	ModeHTTPConnect = "http-connect"
	ModeGRPC        = "grpc"
)

// DirectOptions are those of "direct".
type DirectOptions struct {
	// Socket is the path of the konnectivity-server's Unix socket. Address is host:port of
	// its frontend on TCP. One of them is set.
	Socket, Address string
	// Mode is what the server speaks there. The default is ModeHTTPConnect.
	Mode string
	// CertFile, KeyFile and CAFile authenticate both sides on TCP. They are read for each
	// connection, so renewed certificates are used.
	CertFile, KeyFile, CAFile string
	// ServerName is the name in the server's certificate. The default is the host of
	// Address.
	ServerName string
}

func (o *DirectOptions) validate() error {
	o.Mode = cmp.Or(o.Mode, ModeHTTPConnect)
	switch {
	case (o.Socket == "") == (o.Address == ""):
		return errors.New("direct needs a konnectivity-server: pass either its socket or its address")
	case o.Mode != ModeHTTPConnect && o.Mode != ModeGRPC:
		return fmt.Errorf("mode %q is unknown: use %s or %s, as in konnectivity-server's --mode", o.Mode, ModeHTTPConnect, ModeGRPC)
	case o.Address != "" && (o.CertFile == "" || o.KeyFile == "" || o.CAFile == ""):
		return errors.New("a konnectivity-server on TCP needs a client certificate, its key and a CA: pass all three files")
	}
	if o.Address != "" {
		host, _, err := net.SplitHostPort(o.Address)
		if err != nil {
			return fmt.Errorf("address of the konnectivity-server: %w: write HOST:PORT", err)
		}
		o.ServerName = cmp.Or(o.ServerName, host)
	}
	return nil
}

// direct dials through a konnectivity-server, as kube-apiserver does.
type direct struct {
	o          DirectOptions
	life       context.Context
	end        context.CancelFunc
	goroutines sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newDirect(o Options) (*direct, error) {
	if err := o.Direct.validate(); err != nil {
		return nil, err
	}
	if o.Direct.KeyFile != "" {
		if err := secretfile.CheckOwn(o.Direct.KeyFile); err != nil {
			o.Logger.Error(err, "The key of the client certificate is not protected")
		}
	}
	d := &direct{o: o.Direct, conns: map[net.Conn]bool{}}
	d.life, d.end = context.WithCancel(context.Background())
	return d, nil
}

func (d *direct) external() bool { return true }

// Dial opens a connection through an agent.
func (d *direct) Dial(ctx context.Context, to gateway.Destination) (gateway.Conn, error) {
	if d.life.Err() != nil {
		return nil, gateway.Errorf(gateway.ReasonPathDown, "", "the dialer is closed")
	}
	if d.o.Mode == ModeGRPC {
		return d.dialGRPC(ctx, to)
	}
	c, err := d.connect(ctx)
	if err != nil {
		return nil, d.serverError(err)
	}
	if !d.track(c) {
		return nil, gateway.Errorf(gateway.ReasonPathDown, "", "the dialer is closed")
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	reader, err := d.handshake(c, to)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		d.untrack(c)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return &directConn{Conn: c, reader: reader, d: d, to: to}, nil
}

// connect reaches the server.
func (d *direct) connect(ctx context.Context) (net.Conn, error) {
	if d.o.Socket != "" {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.o.Socket)
	}
	config, err := d.tlsConfig()
	if err != nil {
		return nil, err
	}
	return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", d.o.Address)
}

func (d *direct) tlsConfig() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(d.o.CertFile, d.o.KeyFile)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(d.o.CAFile)
	if err != nil {
		return nil, err
	}
	if err := pemcheck.Check(d.o.CAFile, ca); err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s holds no certificate", d.o.CAFile)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: d.o.ServerName, MinVersion: tls.VersionTLS12}, nil
}

// serverError says that the server itself cannot be reached.
func (d *direct) serverError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if d.o.Socket != "" {
		return gateway.Errorf(gateway.ReasonPathDown, "run this on the konnectivity-server's host, as a user who may open the socket", "connect to the konnectivity-server: %w", err)
	}
	return gateway.Errorf(gateway.ReasonPathDown, "check that the konnectivity-server runs, and that the certificates are of its CA", "connect to the konnectivity-server: %w", err)
}

// maxHead bounds the server's answer.
const maxHead = 64 << 10

// handshake asks for a connection. It returns a reader that holds what came with the answer.
func (d *direct) handshake(c net.Conn, to gateway.Destination) (*bufio.Reader, error) {
	address := target(to)
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address); err != nil {
		return nil, d.serverError(err)
	}
	head := &capped{Reader: c, left: maxHead}
	reader := bufio.NewReader(head)
	resp, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // the connection follows the head
	if err != nil {
		return nil, d.serverError(fmt.Errorf("no answer to CONNECT: %w", err))
	}
	head.left = -1
	if resp.StatusCode != http.StatusOK {
		return nil, tunnelError(to, resp.StatusCode, resp.Status)
	}
	return reader, nil
}

// capped fails when too much is read, until left is negative.
type capped struct {
	io.Reader
	left int
}

// Read reads.
func (c *capped) Read(p []byte) (int, error) {
	if c.left < 0 {
		return c.Reader.Read(p)
	}
	if c.left == 0 {
		return 0, errors.New("the answer is too long")
	}
	n, err := c.Reader.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// tunnelError gives a reason to what a server or an agent says. The kinds are those of
// docs/tunnel.md; upstream's server has only the status.
func tunnelError(to gateway.Destination, status int, text string) error {
	text = strings.TrimSpace(text)
	kind, _, _ := strings.Cut(strings.TrimPrefix(text, fmt.Sprintf("%d ", status)), ":")
	reason, hint := gateway.ReasonPathDown, "see the konnectivity-server's log"
	switch {
	case kind == "refused", strings.Contains(text, "connection refused"):
		reason, hint = gateway.ReasonRefused, "check that something listens on this port"
	case kind == "no_route", strings.Contains(text, "unreachable"), strings.Contains(text, "no route to host"):
		reason, hint = gateway.ReasonHostUnreachable, "check the network of the agent's node"
	case kind == "dns", strings.Contains(text, "no such host"):
		reason, hint = gateway.ReasonNotFound, "the agent cannot resolve this name: check its DNS"
	case kind == "denied", status == http.StatusForbidden:
		reason, hint = gateway.ReasonDenied, "see the agent's flags for destinations"
	case kind == "limit", status == http.StatusServiceUnavailable:
		reason, hint = gateway.ReasonBusy, "close connections, or raise the limit of the server or agent"
	case kind == "no_agent", kind == "agent_gone":
		hint = "check that an agent for this destination is connected: kubectl get pods -A -l k8s-app=konnectivity-agent"
	case kind == "timeout", status == http.StatusGatewayTimeout, strings.Contains(text, "timeout"), strings.Contains(text, "deadline exceeded"):
		reason, hint = gateway.ReasonTimeout, "check that the destination answers"
	}
	return gateway.Errorf(reason, hint, "konnectivity-server cannot connect to %s: %w", to, fmt.Errorf("%.500s", text))
}

// track keeps a connection to be closed with the dialer.
func (d *direct) track(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life.Err() != nil {
		_ = c.Close()
		return false
	}
	d.conns[c] = true
	return true
}

func (d *direct) untrack(c net.Conn) {
	d.mu.Lock()
	delete(d.conns, c)
	d.mu.Unlock()
	_ = c.Close()
}

// Close closes all connections.
func (d *direct) Close() error {
	d.mu.Lock()
	d.end()
	for c := range d.conns {
		_ = c.Close()
	}
	d.mu.Unlock()
	d.goroutines.Wait()
	return nil
}

// directConn is a connection through HTTP CONNECT.
type directConn struct {
	net.Conn
	reader *bufio.Reader
	d      *direct
	to     gateway.Destination
}

// Read reads, first what came with the server's answer.
func (c *directConn) Read(p []byte) (int, error) {
	if c.reader.Buffered() > 0 {
		return c.reader.Read(p)
	}
	return c.Conn.Read(p)
}

// CloseWrite ends what is sent; the tunnel passes that on.
func (c *directConn) CloseWrite() error {
	return c.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

// Close closes the connection.
func (c *directConn) Close() error {
	c.d.untrack(c.Conn)
	return nil
}

// LocalAddr returns an address of type *net.TCPAddr.
func (c *directConn) LocalAddr() net.Addr { return tcpAddr(c.Conn.LocalAddr()) }

// RemoteAddr returns the destination's address.
func (c *directConn) RemoteAddr() net.Addr { return destinationAddr(c.to) }

func destinationAddr(to gateway.Destination) net.Addr {
	if !to.Addr.IsValid() {
		return &net.TCPAddr{IP: net.IPv4zero, Port: int(to.Port)}
	}
	return net.TCPAddrFromAddrPort(to.Addr)
}
