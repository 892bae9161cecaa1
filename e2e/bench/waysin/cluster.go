// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/gateway/dial"
	"golang.org/x/net/proxy"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/e2e/bench/internal/benchcluster"
)

// clusterName keeps the benchmark's cluster apart from the user's.
const clusterName = "bench-ways-in"

// benchCluster measures the command with all paths, on an embedded cluster, next to "ssh -D". The cluster's programs run next to all of
// them. There are no goals: the command looks up and authorizes each destination, of which "ssh -D" knows nothing.
func benchCluster(ctx context.Context, o options) (err error) {
	kubeconfig, down, err := benchcluster.Start(ctx, o.fairlead, o.dir, clusterName, "{tunnelAPI: {enabled: true, connect: true}}")
	defer func() { err = errors.Join(err, down()) }()
	if err != nil {
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
	if err := servePod(ctx, client, &c, podService); err != nil {
		return err
	}
	host, err := serveHost(ctx, client, &c, hostService)
	if err != nil {
		return err
	}
	socket, stop, err := startTunnel(o.bin, host) //nolint:contextcheck // the programs end with the benchmark
	if err != nil {
		return err
	}
	c = append(c, stop)
	var ways []*way
	var names []string
	for _, p := range []commandPath{
		{dial.ViaPortForward, podService, nil},
		{dial.ViaAPI, hostService, nil},
		{dial.ViaDirect, hostService, []string{"--server-socket", socket}},
		{dial.ViaSSH + base.sshd.target(), hostService, []string{"--ssh-config", base.sshd.config()}},
		{dial.ViaNetwork, hostService, nil},
	} {
		d, err := c.startCommand(ctx, o, kubeconfig, p)
		if err != nil {
			return err
		}
		ways, names = append(ways, &way{dialer: d}), append(names, "--via "+p.name())
	}
	return withoutGoals(o, append(ways, base.ssh), append(names, "ssh -D"), target)
}

// podService and hostService are the Services before a Pod and before this machine's address.
const podService, hostService = "pod", "host"

// commandPath is a path of the command, with the Service to which it leads and the path's own flags.
type commandPath struct {
	via, service string
	flags        []string
}

// name is the path without the bastion.
func (p commandPath) name() string {
	name, _, _ := strings.Cut(p.via, "=")
	return name
}

// hostDialer connects to one host and port, whatever the target is.
type hostDialer struct {
	proxy.Dialer
	target string
}

func (d hostDialer) Dial(network, _ string) (net.Conn, error) {
	return d.Dialer.Dial(network, d.target)
}

// startCommand starts "fairlead socks5" and returns a dialer that leads to the path's Service.
func (c *closers) startCommand(ctx context.Context, o options, kubeconfig string, p commandPath) (proxy.Dialer, error) {
	password := filepath.Join(o.dir, "password")
	if err := os.WriteFile(password, []byte(benchLogin.Name+":"+benchLogin.Password), 0o600); err != nil {
		return nil, err
	}
	port := benchcluster.FreePort(ctx)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	log, err := os.Create(filepath.Join(o.dir, p.name()+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := append([]string{"socks5", "--via", p.via, "--listen", addr, "--password-file", password, "--kubeconfig", kubeconfig}, p.flags...)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), o.fairlead, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	*c = append(*c, func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if err := awaitPort(port); err != nil { //nolint:contextcheck // it has a limit of its own
		said, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("fairlead socks5 --via %s did not start: %w\n%s", p.via, err, said)
	}
	d, err := socks5Dialer(addr)
	return hostDialer{d, net.JoinHostPort(p.service+"."+servicesNamespace, strconv.Itoa(servicePort))}, err
}
