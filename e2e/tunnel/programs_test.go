package tunnel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// startBound is for programs to get ready on a busy machine.
const startBound = 30 * time.Second

// programs is the directory that TestMain builds into.
var programs string

func ourServer() string { return filepath.Join(programs, "konnectivity-server") }
func ourAgent() string  { return filepath.Join(programs, "konnectivity-agent") }

func TestMain(m *testing.M) {
	os.Exit(daemontest.Main(m, func(dir string) { programs = dir },
		"github.com/fairlead-dev/fairlead/cmd/konnectivity-server",
		"github.com/fairlead-dev/fairlead/cmd/konnectivity-agent",
		"sigs.k8s.io/apiserver-network-proxy/cmd/server",
		"sigs.k8s.io/apiserver-network-proxy/cmd/agent",
	))
}

// pair is a server and an agent, connected with mutual TLS over loopback, and an echo server behind the agent.
type pair struct {
	server, agent *daemontest.Process
	mode          string
	socket        string
	agentHealth   string
	echo          string
}

// options vary a pair.
type options struct {
	mode        string // of the frontend: "grpc" or "http-connect"
	serverFlags []string
	agentFlags  []string
	agentEnv    []string
}

// startPair returns once the agent says that it is connected.
func startPair(t *testing.T, o options) *pair {
	t.Helper()
	ports := daemontest.Ports(t, 5)
	tls := daemontest.Certificate(t)
	p := &pair{mode: o.mode, socket: daemontest.SocketPath(t), echo: echoServer(t)}
	p.server = daemontest.Start(t, nil, ourServer(), append([]string{
		"--mode=" + o.mode, "--uds-name=" + p.socket, "--server-port=0", "--server-id=test",
		"--cluster-cert=" + tls.Cert, "--cluster-key=" + tls.Key, "--cluster-ca-cert=" + tls.CA,
		"--agent-bind-address=127.0.0.1", "--agent-port=" + ports[0],
		"--health-bind-address=127.0.0.1", "--health-port=" + ports[1], "--admin-port=" + ports[2],
	}, o.serverFlags...)...)
	daemontest.Eventually(t, startBound, func() error { return get("http://127.0.0.1:" + ports[1] + "/healthz") })
	p.agentHealth = "http://127.0.0.1:" + ports[3]
	p.agent = daemontest.Start(t, o.agentEnv, ourAgent(), append([]string{
		"--proxy-server-host=127.0.0.1", "--proxy-server-port=" + ports[0],
		"--ca-cert=" + tls.CA, "--agent-cert=" + tls.Cert, "--agent-key=" + tls.Key,
		"--health-server-host=127.0.0.1", "--health-server-port=" + ports[3], "--admin-server-port=" + ports[4],
		"--deny-destinations=", // the targets are on loopback
	}, o.agentFlags...)...)
	daemontest.Eventually(t, startBound, func() error { return get(p.agentHealth + "/readyz") })
	return p
}

// dial opens a connection through the tunnel to the echo server and checks that it carries bytes.
func (p *pair) dial(t *testing.T) net.Conn {
	t.Helper()
	dial := p.dialConnect
	if p.mode == "grpc" {
		dial = p.dialGRPC
	}
	conn, err := dial(t)
	if err != nil {
		t.Fatalf("dial through the tunnel: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := roundTrip(conn); err != nil {
		t.Fatalf("echo through the tunnel: %v", err)
	}
	return conn
}

func (p *pair) dialGRPC(t *testing.T) (net.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	tunnel, err := client.CreateSingleUseGrpcTunnel(ctx, "unix:"+p.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return tunnel.DialContext(ctx, "tcp", p.echo)
}

func (p *pair) dialConnect(t *testing.T) (net.Conn, error) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", p.socket)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", p.echo); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() // does not end the connection, which is the test's from here
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("CONNECT: %s", response.Status)
	}
	return conn, nil
}

// roundTrip writes a line to an echo server and reads it back.
func roundTrip(conn net.Conn) error {
	const message = "ping"
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err == nil {
		defer func() { _ = conn.SetDeadline(time.Time{}) }()
	} // else it is a tunnel of konnectivity-client, which knows no deadlines
	if _, err := conn.Write([]byte(message)); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	answer := make([]byte, len(message))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if string(answer) != message {
		return fmt.Errorf("got %q, want %q", answer, message)
	}
	return nil
}

func echoServer(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return listener.Addr().String()
}

func get(url string) error {
	response, err := http.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return nil
}

func absent(path string) error {
	_, err := os.Lstat(path)
	switch {
	case err == nil:
		return fmt.Errorf("%s is still there", path)
	case errors.Is(err, os.ErrNotExist):
		return nil
	default:
		return err
	}
}
