// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/internal/httpconnect"
	"github.com/fairlead-dev/fairlead/pkg/internal/pemcheck"
	"github.com/fairlead-dev/fairlead/pkg/internal/secretfile"
	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
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
	header := http.Header{}
	traceparent.From(ctx).Set(header)
	open, err := httpconnect.Ask(ctx, c, target(to), header)
	if err != nil {
		d.untrack(c)
		var refused *httpconnect.RefusedError
		switch {
		case errors.As(err, &refused):
			return nil, gateway.TunnelError(to, refused.Code, refused.Status)
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		return nil, d.serverError(err)
	}
	return &directConn{Conn: open, d: d, to: to}, nil
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
	*httpconnect.Conn
	d  *direct
	to gateway.Destination
}

// Close closes the connection.
func (c *directConn) Close() error {
	c.d.untrack(c.NetConn())
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
