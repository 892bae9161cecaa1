// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/gateway/dial"
	"golang.org/x/net/proxy"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// clusterName keeps the benchmark's cluster apart from the user's.
const clusterName = "bench-ways-in"

// benchCluster measures the command with the paths that need an API server, on an embedded cluster, beside "ssh -D" and the
// tunnel without an API server. The cluster's programs run beside all of them. There are no goals: who has a login on a host
// or the server's socket has no need of these paths.
func benchCluster(ctx context.Context, o options) (err error) {
	kubeconfig, bundle := filepath.Join(o.dir, "cluster.kubeconfig"), filepath.Join(o.dir, "bundle.yaml") // not the user's
	text := "apiVersion: fairlead.dev/v1beta1\nkind: Bundle\nmetadata: {name: default}\nspec: {tunnelAPI: {enabled: true, connect: true}}\n"
	if err := os.WriteFile(bundle, []byte(text), 0o600); err != nil {
		return err
	}
	call := func(ctx context.Context, args ...string) error {
		return command(ctx, o.fairlead, append(args, "--name", clusterName, "--kubeconfig", kubeconfig)...)
	}
	defer func() { err = errors.Join(err, call(context.WithoutCancel(ctx), "down")) }()
	if err := call(ctx, "up", "--nodes", "1", "--agents", "1", "--filename", bundle, "--no-verify"); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var c closers
	defer c.close()
	base, target, err := c.startWays(o) //nolint:contextcheck // the programs end with the benchmark
	if err != nil {
		return err
	}
	ways := []*way{{}, {}, {}, base.ssh}
	for i, path := range []struct {
		via   string
		serve func(context.Context, kubernetes.Interface, *closers, string) error
	}{{dial.ViaPortForward, servePod}, {dial.ViaAPI, serveHost}} {
		if err := path.serve(ctx, client, &c, path.via); err != nil {
			return err
		}
		addr, err := c.startCommand(ctx, o, kubeconfig, path.via)
		if err != nil {
			return err
		}
		d, err := socks5Dialer(addr)
		if err != nil {
			return err
		}
		ways[i].dialer = hostDialer{d, net.JoinHostPort(path.via+"."+servicesNamespace, strconv.Itoa(servicePort))}
	}
	socket, stop, err := startTunnel(o.bin) //nolint:contextcheck // the programs end with the benchmark
	if err != nil {
		return err
	}
	c = append(c, stop)
	direct := c.keep(process("socks5-proxy", dial.ViaDirect, socket))(&err) //nolint:contextcheck // the programs end with the benchmark
	if err != nil {
		return err
	}
	if ways[2].dialer, err = socks5Dialer(direct); err != nil {
		return err
	}
	return withoutGoals(o, ways, []string{"--via " + dial.ViaPortForward, "--via " + dial.ViaAPI, "--via " + dial.ViaDirect, "ssh -D"}, target)
}

// hostDialer connects to one host and port, whatever the target is.
type hostDialer struct {
	proxy.Dialer
	target string
}

func (d hostDialer) Dial(network, _ string) (net.Conn, error) {
	return d.Dialer.Dial(network, d.target)
}

// startCommand starts "fairlead socks5" and returns its address.
func (c *closers) startCommand(ctx context.Context, o options, kubeconfig, via string) (addr string, err error) {
	password := filepath.Join(o.dir, "password")
	if err := os.WriteFile(password, []byte(benchLogin.Name+":"+benchLogin.Password), 0o600); err != nil {
		return "", err
	}
	port := freePort() //nolint:contextcheck // it takes no time
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	log, err := os.Create(filepath.Join(o.dir, via+".log"))
	if err != nil {
		return "", err
	}
	defer log.Close()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), o.fairlead, "socks5", "--via", via, "--listen", addr, "--password-file", password, "--kubeconfig", kubeconfig)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return "", err
	}
	*c = append(*c, func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if err := awaitPort(port); err != nil { //nolint:contextcheck // it has a limit of its own
		said, _ := os.ReadFile(log.Name())
		return "", fmt.Errorf("fairlead socks5 --via %s did not start: %w\n%s", via, err, said)
	}
	return addr, nil
}

// command runs a program; the error has what it said.
func command(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // let it clean up
	cmd.WaitDelay = time.Minute
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", program, args, err, &said)
	}
	return nil
}
