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
	"github.com/fairlead-dev/fairlead/pkg/gateway/dial"
	"github.com/fairlead-dev/fairlead/pkg/gateway/rules"
	"github.com/fairlead-dev/fairlead/pkg/gateway/socks5"

	"github.com/fairlead-dev/fairlead/e2e/bench/internal/benchcluster"
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

// localDialer dials from this machine. It is what the listener costs by itself.
type localDialer struct{}

func (localDialer) Dial(ctx context.Context, d gateway.Destination) (gateway.Conn, error) {
	var nd net.Dialer
	nc, err := nd.DialContext(ctx, "tcp", d.Addr.String())
	if err != nil {
		return nil, gateway.Errorf(gateway.ReasonRefused, "", "%w", err)
	}
	return nc.(*net.TCPConn), nil
}

var benchLogin = auth.Login{Name: "bench", Password: "bench"}

// serveProxy serves the listener over a path: "network", "direct SOCKET" or "ssh=... DIR", where DIR has the
// keys of sshServer.
func serveProxy() error {
	var path gateway.Dialer = localDialer{}
	if via := os.Args[2]; via != "network" {
		d, err := dial.New(via, dial.Options{
			Direct: dial.DirectOptions{Socket: os.Args[3]},
			SSH: dial.SSHOptions{ConfigFile: "none", KnownHosts: []string{filepath.Join(os.Args[3], "known_hosts")},
				IdentityFiles: []string{filepath.Join(os.Args[3], "user")}, AgentSocket: "none"},
		})
		if err != nil {
			return err
		}
		path = d
	}
	password, err := auth.NewPassword(benchLogin)
	if err != nil {
		return err
	}
	l, err := listenAndPrint()
	if err != nil {
		return err
	}
	return socks5.NewServer(socks5.Config{
		Resolver: localNetwork{}, Dialer: path, Authorizer: &rules.Authorizer{AllowLocal: true}, Authenticator: &auth.Authenticator{Password: password},
	}).Serve(l)
}

func listenAndPrint() (net.Listener, error) { return listenAtAndPrint("127.0.0.1") }

func listenAtAndPrint(host string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", net.JoinHostPort(host, "0"))
	if err == nil {
		fmt.Println(l.Addr())
	}
	return l, err
}

// serveTarget echoes, or sends without end if the first byte is 'd'. It listens on loopback, or at the address that it gets.
func serveTarget() error {
	l, err := listenAtAndPrint(append(os.Args[2:], "127.0.0.1")[0])
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
func process(args ...string) (addr string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(context.Background(), self, args...)
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
		return "", nil, fmt.Errorf("%s did not start: %w", args[0], err)
	}
	addr = strings.TrimSpace(line)
	pidMu.Lock()
	pids[addr] = cmd.Process.Pid
	pidMu.Unlock()
	return addr, stop, nil
}

// sshServer is an sshd on loopback, with keys of its own.
type sshServer struct {
	dir, user string
	port      int
	started   []*exec.Cmd
}

// target is USER@HOST:PORT.
func (s *sshServer) target() string { return s.user + "@127.0.0.1:" + strconv.Itoa(s.port) }

// config is a configuration file of clients.
func (s *sshServer) config() string { return filepath.Join(s.dir, "ssh_config") }

func (s *sshServer) stop() {
	for _, cmd := range slices.Backward(s.started) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	_ = os.RemoveAll(s.dir)
}

// start runs a program that listens at a port.
func (s *sshServer) start(port int, args ...string) error {
	cmd := exec.CommandContext(context.Background(), args[0], args[1:]...)
	if err := cmd.Start(); err != nil {
		return err
	}
	s.started = append(s.started, cmd)
	if err := awaitPort(port); err != nil {
		return fmt.Errorf("%s did not start: %w", args[0], err)
	}
	return nil
}

func startSSHD(sshd string) (s *sshServer, err error) {
	me, err := user.Current()
	if err != nil {
		return nil, err
	}
	s = &sshServer{user: me.Username, port: benchcluster.FreePort(context.Background())}
	if s.dir, err = os.MkdirTemp("", "bench-ways-in-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	for _, key := range []string{"host", "user"} {
		if out, err := exec.CommandContext(context.Background(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(s.dir, key)).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("ssh-keygen: %w: %s", err, out)
		}
	}
	public, err := os.ReadFile(filepath.Join(s.dir, "host.pub"))
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf("ListenAddress 127.0.0.1:%d\nHostKey %s/host\nAuthorizedKeysFile %s/user.pub\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n", s.port, s.dir, s.dir)
	client := fmt.Sprintf("Host *\n  IdentityFile %[1]s/user\n  IdentitiesOnly yes\n  UserKnownHostsFile %[1]s/known_hosts\n", s.dir)
	files := map[string]string{"sshd_config": config, "ssh_config": client, "known_hosts": fmt.Sprintf("[127.0.0.1]:%d %s", s.port, public)}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	if os.Getuid() == 0 {
		_ = os.MkdirAll("/run/sshd", 0o755) // sshd of root insists on it
	}
	return s, s.start(s.port, sshd, "-D", "-f", s.dir+"/sshd_config")
}

// dynamic runs "ssh -D" to the server. It ends with the server.
func (s *sshServer) dynamic() (addr string, err error) {
	socks := benchcluster.FreePort(context.Background())
	err = s.start(socks, "ssh", "-F", "none", "-N", "-q", "-D", "127.0.0.1:"+strconv.Itoa(socks), "-p", strconv.Itoa(s.port), "-i", s.dir+"/user", "-o", "BatchMode=yes",
		"-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile="+s.dir+"/known_hosts", s.user+"@127.0.0.1")
	return "127.0.0.1:" + strconv.Itoa(socks), err
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
