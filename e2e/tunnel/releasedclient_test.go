// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestReleasedClient runs the suite through the gRPC client that kube-apiserver was
// released with, which is older than this module's.
// It observes OLD-30 of docs/requirements.md.
func TestReleasedClient(t *testing.T) {
	p := startPair(t, options{mode: "grpc"})
	socket := daemontest.SocketPath(t)
	daemontest.Start(t, nil, ours.path("releasedclient"), socket, p.socket)
	daemontest.Eventually(t, startBound, func() error {
		c, err := net.Dial("unix", socket)
		if err != nil {
			return err
		}
		return c.Close()
	})
	tunneltest.Run(t, tunneltest.Pair{Dial: throughReleased(socket), Failure: "connection refused", SlowClients: true, SlowTargets: true})
}

// throughReleased dials with the program releasedclient.
func throughReleased(socket string) tunneltest.Dialer {
	return func(ctx context.Context, address string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, err
		}
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		defer stop()
		if _, err := fmt.Fprintln(c, address); err != nil {
			_ = c.Close()
			return nil, err
		}
		in := bufio.NewReader(c)
		answer, err := in.ReadString('\n')
		if err == nil && answer != "ok\n" {
			err = errors.New(strings.TrimSpace(answer))
		}
		if err != nil {
			_ = c.Close()
			return nil, err
		}
		return &read{Conn: c, in: in}, nil
	}
}

// read is a connection from which some bytes may have been read already.
type read struct {
	net.Conn
	in io.Reader
}

// Read implements net.Conn.
func (r *read) Read(p []byte) (int, error) { return r.in.Read(p) }
