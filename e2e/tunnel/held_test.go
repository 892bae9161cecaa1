// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestServerRestartHeld replaces the only server while another process holds its sockets,
// as systemd does: no new connection fails in any mode, over the socket or over TCP, and no
// transfer is cut.
func TestServerRestartHeld(t *testing.T) {
	testutil.Full(t, "restarts servers under load")
	for _, c := range []struct {
		name, mode string
		tcp        bool
	}{
		{"grpc", "grpc", false}, {"http-connect", "http-connect", false},
		{"grpc over TCP", "grpc", true}, {"http-connect over TCP", "http-connect", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := options{mode: c.mode, held: true, serverFlags: []string{"--graceful-shutdown-timeout=5s"}}
			p, dial := heldPair(t, o, c.tcp)
			load, tr := tunneltest.StartLoad(t, dial, p.echo, perSecond), tunneltest.StartTraffic(t, dial, nil)
			for range 3 {
				load.MoreDials(t, perSecond/2)
				p.restartServer(t, 1, 500*time.Millisecond)
			}
			tr.Progress()
			load.NoneFailed(t)
			tr.NoneCut()
		})
	}
}

func heldPair(t *testing.T, o options, tcp bool) (*pair, tunneltest.Dialer) {
	t.Helper()
	if !tcp {
		p := startPair(t, o)
		return p, p.dialer()
	}
	files := daemontest.Certificate(t)
	p, frontend := startOverTCP(t, o, files)
	if o.mode == "grpc" {
		return p, tunneltest.GRPCTLS(frontend, mutual(t, files))
	}
	return p, tunneltest.ConnectTLS(frontend, mutual(t, files))
}

// hold listens and returns what it listens with, which stays open until the test ends.
func hold(t *testing.T, network, address string) *os.File {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	file, err := l.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// TestStrangeSocket: a socket that no flag names is refused by name.
func TestStrangeSocket(t *testing.T) {
	address := "127.0.0.1:" + daemontest.Ports(t, 1)[0]
	file := hold(t, "tcp", address)
	files := daemontest.Certificate(t)
	p := daemontest.StartWith(t, []*os.File{file}, nil, ours.server(), "--uds-name="+daemontest.SocketPath(t), "--server-port=0", "--agent-port="+daemontest.Ports(t, 1)[0],
		"--mode=grpc", "--cluster-cert="+files.Cert, "--cluster-key="+files.Key)
	if code := p.ExitCode(t, startBound); code == 0 {
		t.Error("the server takes it")
	}
	if why := "tcp " + address + " was handed to the server (LISTEN_FDS), which uses one for --uds-name, or for --server-port without it, and one for --agent-port"; !strings.Contains(p.Output(), why) {
		t.Errorf("the server does not say %q:\n%s", why, p.Output())
	}
}
