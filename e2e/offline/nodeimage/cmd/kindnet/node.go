// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/fsutil"
	corev1 "k8s.io/api/core/v1"
)

// node keeps the network of one node in line with the Node objects of the API server.
type node struct {
	name       string
	podSubnets []string
	confDir    string
	// command runs a program and returns its output.
	command func(ctx context.Context, name string, args ...string) (string, error)
}

// protocol marks our routes in the kernel's table; it is not one of /etc/iproute2/rt_protos.
const protocol = "197"

// sync configures CNI for this node's pods, routes to the other nodes' pods, and masquerading.
func (n node) sync(ctx context.Context, nodes []*corev1.Node) error {
	routes := map[netip.Prefix]netip.Addr{}
	errs := []error{n.masquerade(ctx)}
	for _, other := range nodes {
		if other.Name == n.name {
			errs = append(errs, n.writeConf(other.Spec.PodCIDRs))
			continue
		}
		for _, text := range other.Spec.PodCIDRs {
			cidr, err := netip.ParsePrefix(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("node %s: %w", other.Name, err))
			} else if via, ok := internalIP(other, cidr.Addr().Is6()); ok {
				routes[cidr] = via
			}
		}
	}
	return errors.Join(append(errs, n.route(ctx, routes))...)
}

func internalIP(node *corev1.Node, six bool) (netip.Addr, bool) {
	for _, address := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(address.Address); err == nil && address.Type == corev1.NodeInternalIP && ip.Is6() == six {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

// writeConf gives containerd its CNI configuration; from then on the node is ready.
func (n node) writeConf(cidrs []string) error {
	if len(cidrs) == 0 {
		return nil // the controller manager has not given one yet
	}
	data, err := conf(cidrs)
	if err != nil {
		return err
	}
	path := filepath.Join(n.confDir, "10-kindnet.conflist")
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	return fsutil.WriteFile(path, data, 0o644)
}

func conf(cidrs []string) ([]byte, error) {
	type object = map[string]any
	var ranges [][]object
	var routes []object
	for _, text := range cidrs {
		cidr, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("pod CIDR: %w", err)
		}
		ranges = append(ranges, []object{{"subnet": text}})
		everywhere := "0.0.0.0/0"
		if cidr.Addr().Is6() {
			everywhere = "::/0"
		}
		routes = append(routes, object{"dst": everywhere})
	}
	return json.MarshalIndent(object{
		"cniVersion": "0.3.1", "name": "kindnet",
		"plugins": []object{
			{"type": "ptp", "ipMasq": false, "ipam": object{"type": "host-local", "dataDir": "/run/cni-ipam-state", "ranges": ranges, "routes": routes}},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}, "", "  ")
}

// route adds and removes routes until ours are the wanted ones.
func (n node) route(ctx context.Context, wanted map[netip.Prefix]netip.Addr) error {
	var errs []error
	for _, family := range []string{"-4", "-6"} {
		out, err := n.command(ctx, "ip", family, "route", "show", "proto", protocol)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for line := range strings.Lines(out) {
			fields := strings.Fields(line) // "10.244.1.0/24 via 172.18.0.3 dev eth0"
			if len(fields) < 3 {
				continue
			}
			cidr, err := netip.ParsePrefix(fields[0])
			if err != nil {
				continue
			}
			if via, ok := wanted[cidr]; ok && via.String() == fields[2] {
				delete(wanted, cidr) // it is there
			} else if !ok {
				_, err := n.command(ctx, "ip", family, "route", "del", fields[0], "proto", protocol)
				errs = append(errs, err)
			}
		}
	}
	for cidr, via := range wanted {
		_, err := n.command(ctx, "ip", "route", "replace", cidr.String(), "via", via.String(), "proto", protocol)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// masquerade gives packets that leave the pod network the node's address, because hosts outside have no route back to
// a pod.
func (n node) masquerade(ctx context.Context) error {
	const chain = "KIND-MASQ"
	var errs []error
	for _, subnet := range n.podSubnets {
		cidr, err := netip.ParsePrefix(subnet)
		if err != nil {
			return fmt.Errorf("POD_SUBNET: %w", err)
		}
		iptables := func(args ...string) error {
			program := "iptables"
			if cidr.Addr().Is6() {
				program = "ip6tables"
			}
			_, err := n.command(ctx, program, append([]string{"--wait", "--table", "nat"}, args...)...)
			return err
		}
		ensure := func(rule ...string) {
			if iptables(append([]string{"--check"}, rule...)...) != nil {
				errs = append(errs, iptables(append([]string{"--append"}, rule...)...))
			}
		}
		_ = iptables("--new-chain", chain) // it may be there
		ensure(chain, "--destination", subnet, "--jump", "RETURN")
		ensure(chain, "--jump", "MASQUERADE")
		ensure("POSTROUTING", "--source", subnet, "--match", "addrtype", "!", "--dst-type", "LOCAL", "--jump", chain)
	}
	return errors.Join(errs...)
}

func command(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
