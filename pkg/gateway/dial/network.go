// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// network connects from this machine's own network, for a gateway that runs in the cluster.
type network struct {
	mu     sync.Mutex
	conns  map[*networkConn]bool
	closed bool
}

func newNetwork() *network { return &network{conns: map[*networkConn]bool{}} }

func (n *network) external() bool { return true }

// Dial connects to the address that was authorized. It resolves no name: a second look-up
// could return another address.
func (n *network) Dial(ctx context.Context, to gateway.Destination) (gateway.Conn, error) {
	if !to.Addr.IsValid() {
		return nil, gateway.Errorf(gateway.ReasonNotFound, "check the name", "the address of %s is not known", to)
	}
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}}
	c, err := d.DialContext(ctx, "tcp", to.Addr.String())
	switch {
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return nil, gateway.Errorf(gateway.ReasonHostUnreachable, "check that the gateway's node routes to it", "dial %s: %w", to, err)
	case err != nil:
		return nil, err
	}
	conn := &networkConn{TCPConn: c.(*net.TCPConn), n: n}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		_ = c.Close()
		return nil, gateway.Errorf(gateway.ReasonPathDown, "", "the dialer is closed")
	}
	n.conns[conn] = true
	return conn, nil
}

// Close closes all connections.
func (n *network) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for c := range n.conns {
		_ = c.TCPConn.Close()
	}
	clear(n.conns)
	return nil
}

// networkConn is forgotten when it is closed.
type networkConn struct {
	*net.TCPConn
	n *network
}

// Close closes the connection.
func (c *networkConn) Close() error {
	c.n.mu.Lock()
	delete(c.n.conns, c)
	c.n.mu.Unlock()
	return c.TCPConn.Close()
}
