// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/auth"
	"github.com/fairlead-dev/fairlead/pkg/gateway/rules"
	"github.com/fairlead-dev/fairlead/pkg/gateway/socks5"
)

// localNetwork resolves addresses to themselves and dials them from this machine.
type localNetwork struct{}

func (localNetwork) Resolve(_ context.Context, host string, port uint16) (gateway.Destination, error) {
	a, err := netip.ParseAddr(host)
	if err != nil {
		return gateway.Destination{}, gateway.Errorf(gateway.ReasonNotFound, "", "%w", err)
	}
	return gateway.Destination{Host: host, Port: port, Kind: gateway.KindPod, Addr: netip.AddrPortFrom(a, port)}, nil
}

func (localNetwork) Dial(ctx context.Context, d gateway.Destination) (gateway.Conn, error) {
	var nd net.Dialer
	nc, err := nd.DialContext(ctx, "tcp", d.Addr.String())
	if err != nil {
		return nil, gateway.Errorf(gateway.ReasonRefused, "", "%w", err)
	}
	return nc.(*net.TCPConn), nil
}

var benchLogin = auth.Login{Name: "bench", Password: "bench"}

func serveProxy() error {
	password, err := auth.NewPassword(benchLogin)
	if err != nil {
		return err
	}
	l, err := listenAndPrint()
	if err != nil {
		return err
	}
	return socks5.NewServer(socks5.Config{
		Resolver: localNetwork{}, Dialer: localNetwork{}, Authorizer: &rules.Authorizer{AllowLocal: true}, Authenticator: &auth.Authenticator{Password: password},
	}).Serve(l)
}

func listenAndPrint() (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Println(l.Addr())
	}
	return l, err
}

// serveTarget echoes, or sends without end if the first byte is 'd'.
func serveTarget() error {
	l, err := listenAndPrint()
	if err != nil {
		return err
	}
	block := make([]byte, 256<<10)
	for {
		nc, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer nc.Close()
			op := make([]byte, 1)
			if _, err := io.ReadFull(nc, op); err != nil {
				return
			}
			_, err := nc.Write(op)
			for err == nil && op[0] == 'd' {
				_, err = nc.Write(block)
			}
			_, _ = io.Copy(nc, nc)
		}()
	}
}

// process starts this program again and returns the address that it prints.
func process(name string) (addr string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(context.Background(), self, name)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("%s did not start: %w", name, err)
	}
	addr = strings.TrimSpace(line)
	pidMu.Lock()
	pids[addr] = cmd.Process.Pid
	pidMu.Unlock()
	return addr, stop, nil
}

// sshProxy runs an sshd of its own on loopback, with keys of its own, and "ssh -D" to it.
func sshProxy(sshd string) (addr string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "bench-ways-in-")
	if err != nil {
		return "", nil, err
	}
	var started []*exec.Cmd
	cleanUp := func() {
		for _, cmd := range slices.Backward(started) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		_ = os.RemoveAll(dir)
	}
	defer func() {
		if err != nil {
			cleanUp()
		}
	}()
	for _, key := range []string{"host", "user"} {
		if out, err := exec.CommandContext(context.Background(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key)).CombinedOutput(); err != nil {
			return "", nil, fmt.Errorf("ssh-keygen: %w: %s", err, out)
		}
	}
	port, socks := freePort(), freePort()
	config := fmt.Sprintf("ListenAddress 127.0.0.1:%d\nHostKey %s/host\nAuthorizedKeysFile %s/user.pub\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n", port, dir, dir)
	if err := os.WriteFile(dir+"/sshd_config", []byte(config), 0o600); err != nil {
		return "", nil, err
	}
	if os.Getuid() == 0 {
		_ = os.MkdirAll("/run/sshd", 0o755) // sshd of root insists on it
	}
	me, err := user.Current()
	if err != nil {
		return "", nil, err
	}
	for _, c := range []struct {
		port int
		args []string
	}{
		{port, []string{sshd, "-D", "-f", dir + "/sshd_config"}},
		{socks, []string{
			"ssh", "-F", "none", "-N", "-q", "-D", "127.0.0.1:" + strconv.Itoa(socks), "-p", strconv.Itoa(port), "-i", dir + "/user", "-o", "BatchMode=yes",
			"-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", me.Username + "@127.0.0.1",
		}},
	} {
		cmd := exec.CommandContext(context.Background(), c.args[0], c.args[1:]...)
		if err := cmd.Start(); err != nil {
			return "", nil, err
		}
		started = append(started, cmd)
		if err := awaitPort(c.port); err != nil {
			return "", nil, fmt.Errorf("%s did not start: %w", c.args[0], err)
		}
	}
	return "127.0.0.1:" + strconv.Itoa(socks), cleanUp, nil
}

func freePort() int {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return 0
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func awaitPort(port int) (err error) {
	for range 100 {
		var nd net.Dialer
		nc, dialErr := nd.DialContext(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err = dialErr; err == nil {
			return nc.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}
