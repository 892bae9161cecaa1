// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/bench/internal/benchcluster"
	"github.com/fairlead-dev/fairlead/e2e/bench/internal/certs"
)

// benchPaths measures SOCKS5 over the paths into a cluster that need neither a kubelet nor an API server, next to "ssh -D". All
// programs are on this machine, so there is no network between them. The tunnel, --via direct, has to reach the goals. Its
// floor is a relay of plain TCP at each of its hops: the proxy, the konnectivity-server and the agent.
func benchPaths(o options) error {
	var c closers
	defer c.close()
	base, target, err := c.startWays(o)
	if err != nil {
		return err
	}
	socket, stop, err := startTunnel(o.bin, "127.0.0.1")
	if err != nil {
		return err
	}
	c = append(c, stop)
	next := target
	for range tunnelHops {
		if next = c.keep(process("relay", next))(&err); err != nil {
			return err
		}
	}
	ways := []*way{{}, {}, base.socks5, base.ssh, {dialer: fixedDialer(next)}}
	for i, args := range [][]string{{"direct", socket}, {"ssh=" + base.sshd.target(), base.sshd.dir}} {
		addr := c.keep(process(append([]string{"socks5-proxy"}, args...)...))(&err)
		if err != nil {
			return err
		}
		if ways[i].dialer, err = socks5Dialer(addr); err != nil {
			return err
		}
	}
	return compare(o, ways, []string{"--via direct", "--via ssh", "--via network", "ssh -D", fmt.Sprintf("TCP relay, %d hops", tunnelHops)}, target)
}

// tunnelHops are the programs between a client and the destination on the way through the tunnel.
const tunnelHops = 3

// fixedDialer connects to one address, whatever the target is.
type fixedDialer string

func (d fixedDialer) Dial(network, _ string) (net.Conn, error) {
	var nd net.Dialer
	return nd.DialContext(context.Background(), network, string(d))
}

// serveRelay copies bytes between each of its connections and one to an address, and does nothing else.
func serveRelay() error {
	l, err := listenAndPrint()
	if err != nil {
		return err
	}
	next := fixedDialer(os.Args[2])
	for {
		in, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer in.Close()
			out, err := next.Dial("tcp", "")
			if err != nil {
				return
			}
			defer out.Close()
			go func() {
				_, _ = io.Copy(out, in)
				_ = out.(*net.TCPConn).CloseWrite() //nolint:forcetypeassert // it is one of TCP
			}()
			_, _ = io.Copy(in, out)
		}()
	}
}

// startTunnel starts a konnectivity-server and an agent that connects to one host only, and returns the server's socket for HTTP CONNECT.
func startTunnel(bin, host string) (socket string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "bench-ways-in-")
	if err != nil {
		return "", nil, err
	}
	var started []*exec.Cmd
	stop = func() {
		for _, cmd := range started {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		_ = os.RemoveAll(dir)
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	if err := certs.Write(dir); err != nil {
		return "", nil, err
	}
	socket = filepath.Join(dir, "s")
	port, health := benchcluster.FreePort(context.Background()), benchcluster.FreePort(context.Background())
	for _, args := range [][]string{
		{"konnectivity-server", "--mode=http-connect", "--uds-name=" + socket, "--server-port=0", "--agent-bind-address=127.0.0.1", "--agent-port=" + strconv.Itoa(port),
			"--cluster-cert=" + dir + "/crt", "--cluster-key=" + dir + "/key", "--cluster-ca-cert=" + dir + "/ca",
			"--admin-port=" + strconv.Itoa(benchcluster.FreePort(context.Background())), "--health-port=" + strconv.Itoa(health), "--health-bind-address=127.0.0.1"},
		{"konnectivity-agent", "--proxy-server-host=127.0.0.1", "--proxy-server-port=" + strconv.Itoa(port), "--agent-identifiers=ipv4=127.0.0.1",
			"--ca-cert=" + dir + "/ca", "--agent-cert=" + dir + "/crt", "--agent-key=" + dir + "/key", "--allow-destinations=" + host,
			"--admin-server-port=" + strconv.Itoa(benchcluster.FreePort(context.Background())), "--health-server-host=127.0.0.1", "--health-server-port=" + strconv.Itoa(benchcluster.FreePort(context.Background()))},
	} {
		log, err := os.Create(filepath.Join(dir, args[0]+".log"))
		if err != nil {
			return "", nil, err
		}
		defer log.Close()
		cmd := exec.CommandContext(context.Background(), filepath.Join(bin, args[0]), args[1:]...)
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			return "", nil, err
		}
		started = append(started, cmd)
	}
	for range 200 { // ready once an agent is connected
		if resp, err := get(context.Background(), http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d/readyz", health)); err == nil {
			_ = resp.Body.Close()
			return socket, stop, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	server, _ := os.ReadFile(filepath.Join(dir, "konnectivity-server.log"))
	agent, _ := os.ReadFile(filepath.Join(dir, "konnectivity-agent.log"))
	return "", nil, fmt.Errorf("the agent does not connect:\n%s\n%s", server, agent)
}
