// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// startBound is for programs to get ready on a busy machine.
const startBound = 30 * time.Second

// programs is the directory that TestMain builds into.
var programs string

// release names where a program comes from.
type release string

const (
	ours    release = ""
	v0_34_0 release = "v0.34.0" // upstream's, from module upstream34
	v0_36_0 release = "v0.36.0" // upstream's, as this module pins it
	earlier release = "earlier" // ours, of an earlier version, from the directory that harness.EarlierPrograms names
)

func (r release) String() string {
	if r == ours {
		return "ours"
	}
	return string(r)
}

func (r release) server() string { return r.program("server") }
func (r release) agent() string  { return r.program("agent") }

func (r release) program(name string) string {
	switch r {
	case ours:
		name = "konnectivity-" + name
	case earlier:
		return filepath.Join(os.Getenv(harness.EarlierPrograms), "konnectivity-"+name)
	}
	return r.path(name)
}

func (r release) path(name string) string { return filepath.Join(programs, string(r), name) }

func ourAgent() string { return ours.agent() }

func TestMain(m *testing.M) {
	if addr := os.Getenv(floodVariable); addr != "" { // see flood_test.go
		_ = json.NewEncoder(os.Stdout).Encode(flood(addr))
		return
	}
	os.Exit(daemontest.Main(m, func(dir string) {
		programs = dir
		if err := errors.Join(buildUpstream(dir), build("releasedclient", dir, ".")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	},
		"github.com/fairlead-dev/fairlead/cmd/konnectivity-server",
		"github.com/fairlead-dev/fairlead/cmd/konnectivity-agent",
	))
}

// buildUpstream builds upstream's programs from the modules that pin them.
func buildUpstream(dir string) error {
	const module = "sigs.k8s.io/apiserver-network-proxy/cmd/"
	for from, r := range map[string]release{".": v0_36_0, "upstream34": v0_34_0} {
		if err := build(from, filepath.Join(dir, string(r)), module+"server", module+"agent"); err != nil {
			return err
		}
	}
	return nil
}

// build builds packages of the module in a directory.
func build(module, into string, packages ...string) error {
	cmd := exec.CommandContext(context.Background(), "go", append([]string{"build", "-C", module, "-o", into + "/"}, packages...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s of %s: %w\n%s", packages, module, err, out)
	}
	return nil
}

// pair is a server and an agent, connected with mutual TLS over loopback, and an echo server behind the agent.
type pair struct {
	server, agent *daemontest.Process
	mode          string
	socket        string
	serverHealth  string
	agentHealth   string
	echo          string
	agents        string // address of the agents' port
	files         daemontest.Files
	links         int // of each agent

	startAgent func() *daemontest.Process // one more
	// launchAgent is startAgent without the wait, and returns where its health is.
	launchAgent func(flags ...string) (agent *daemontest.Process, health string)
	startServer func() *daemontest.Process // the same once more
	change      func(release)              // what later starts are from
}

// options vary a pair.
type options struct {
	mode        string // of the frontend: "grpc" or "http-connect"
	server      release
	agent       release
	links       int    // of each agent; 0 is 1
	held        bool   // our server gets its sockets from the test, which keeps them open
	front       string // host:port of the frontend; empty: it is on the socket
	noClientCA  bool   // agents prove themselves by token, not by certificate
	serverFiles int    // how many descriptors the server may have; 0 is as many as the test
	serverFlags []string
	serverEnv   []string
	agentFlags  []string
	agentEnv    []string
}

// startPair returns once the agent says that it is connected.
func startPair(t *testing.T, o options) *pair {
	t.Helper()
	ports := daemontest.Ports(t, 3)
	tls := daemontest.Certificate(t)
	p := &pair{mode: o.mode, socket: daemontest.SocketPath(t), echo: tunneltest.Target(t, tunneltest.Echo), serverHealth: "http://127.0.0.1:" + ports[1], agents: "127.0.0.1:" + ports[0], files: tls, links: max(o.links, 1)}
	var sockets []*os.File
	if o.held {
		network, address := "unix", p.socket
		if o.front != "" {
			network, address = "tcp", o.front
		}
		sockets = []*os.File{hold(t, "tcp", p.agents), hold(t, network, address)}
	}
	p.change = func(to release) { o.server, o.agent = to, to }
	p.startServer = func() *daemontest.Process {
		flags := []string{
			"--mode=" + o.mode, "--uds-name=" + p.socket, "--server-port=0", "--server-id=test",
			"--cluster-cert=" + tls.Cert, "--cluster-key=" + tls.Key,
			"--agent-bind-address=127.0.0.1", "--agent-port=" + ports[0],
			"--health-bind-address=127.0.0.1", "--health-port=" + ports[1], "--admin-port=" + ports[2],
		}
		if !o.noClientCA {
			flags = append(flags, "--cluster-ca-cert="+tls.CA)
		}
		if p.links > 1 {
			flags = append(flags, fmt.Sprintf("--links-per-agent=%d", p.links))
		}
		flags = append(flags, o.serverFlags...)
		if o.held {
			return daemontest.StartWith(t, sockets, o.serverEnv, o.server.server(), flags...)
		}
		if o.serverFiles > 0 {
			flags = append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, o.serverFiles), o.server.server()}, flags...)
			return daemontest.Start(t, o.serverEnv, "sh", flags...)
		}
		return daemontest.Start(t, o.serverEnv, o.server.server(), flags...)
	}
	p.launchAgent = func(more ...string) (*daemontest.Process, string) {
		own := daemontest.Ports(t, 2)
		flags := append([]string{
			"--proxy-server-host=127.0.0.1", "--proxy-server-port=" + ports[0],
			"--ca-cert=" + tls.CA, "--agent-cert=" + tls.Cert, "--agent-key=" + tls.Key,
			"--health-server-host=127.0.0.1", "--health-server-port=" + own[0], "--admin-server-port=" + own[1],
		}, o.agentFlags...)
		if o.agent == ours || o.agent == earlier {
			flags = append(flags, "--deny-destinations=") // the targets are on loopback
		}
		return daemontest.Start(t, o.agentEnv, o.agent.agent(), append(flags, more...)...), "http://127.0.0.1:" + own[0]
	}
	p.startAgent = func() *daemontest.Process {
		agent, health := p.launchAgent()
		p.agentHealth = health
		daemontest.Eventually(t, startBound, func() error { return get(health + "/readyz") })
		return agent
	}
	p.server = p.startServer()
	daemontest.Eventually(t, startBound, func() error { return get(p.serverHealth + "/healthz") })
	p.agent = p.startAgent()
	return p
}

// dialer dials as kube-apiserver does.
func (p *pair) dialer() tunneltest.Dialer {
	if p.mode == "grpc" {
		return tunneltest.GRPC(p.socket)
	}
	return tunneltest.Connect(p.socket)
}

// dial opens a connection through the tunnel to the echo server and checks that it carries bytes.
func (p *pair) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := p.dialer()(context.Background(), p.echo)
	if err != nil {
		t.Fatalf("dial through the tunnel: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := roundTrip(conn); err != nil {
		t.Fatalf("echo through the tunnel: %v", err)
	}
	return conn
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

// timeout is a context for one step of a test.
func timeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}

func get(url string) error {
	_, err := fetch(url)
	return err
}

func fetch(url string) (string, error) {
	response, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return string(body), nil
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
