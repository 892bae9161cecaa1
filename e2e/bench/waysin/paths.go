// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/bench/internal/certs"
)

// benchPaths measures SOCKS5 over the paths into a cluster that need no kubelet, beside "ssh -D". All
// programs are on this machine, so there is no network between them.
func benchPaths(o options) error {
	var c closers
	defer c.close()
	base, target, err := c.startWays(o)
	if err != nil {
		return err
	}
	socket, stop, err := startTunnel(o.bin)
	if err != nil {
		return err
	}
	c = append(c, stop)
	ways := []*way{{}, {}, base.socks5, base.ssh}
	for i, args := range [][]string{{"ssh=" + base.sshd.user + "@127.0.0.1:" + strconv.Itoa(base.sshd.port), base.sshd.dir}, {"direct", socket}} {
		addr := c.keep(process(append([]string{"socks5-proxy"}, args...)...))(&err)
		if err != nil {
			return err
		}
		if ways[i].dialer, err = socks5Dialer(addr); err != nil {
			return err
		}
	}
	return compare(o, ways, []string{"--via ssh", "--via direct", "--via network", "ssh -D"}, target, false)
}

// startTunnel starts a konnectivity-server and an agent, and returns the server's socket for HTTP CONNECT.
func startTunnel(bin string) (socket string, stop func(), err error) {
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
	port, health := freePort(), freePort()
	for _, args := range [][]string{
		{"konnectivity-server", "--mode=http-connect", "--uds-name=" + socket, "--server-port=0", "--agent-bind-address=127.0.0.1", "--agent-port=" + strconv.Itoa(port),
			"--cluster-cert=" + dir + "/crt", "--cluster-key=" + dir + "/key", "--cluster-ca-cert=" + dir + "/ca",
			"--admin-port=" + strconv.Itoa(freePort()), "--health-port=" + strconv.Itoa(health), "--health-bind-address=127.0.0.1"},
		{"konnectivity-agent", "--proxy-server-host=127.0.0.1", "--proxy-server-port=" + strconv.Itoa(port), "--agent-identifiers=ipv4=127.0.0.1",
			"--ca-cert=" + dir + "/ca", "--agent-cert=" + dir + "/crt", "--agent-key=" + dir + "/key", "--allow-destinations=127.0.0.1",
			"--admin-server-port=" + strconv.Itoa(freePort()), "--health-server-host=127.0.0.1", "--health-server-port=" + strconv.Itoa(freePort())},
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
