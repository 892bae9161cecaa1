// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// # A firewall between Pods
//
// Docker drops every packet that the machine forwards unless it belongs to Docker's
// own networks. Docker also enables bridge-nf-call-iptables, and with that the rule
// applies to packets within a bridge, too, and so to the networks of other runtimes.
// The rules of those runtimes accept the addresses of nodes, but packets from Pods
// on one node to Pods on another are dropped. Agents that cannot reach the cluster's
// DNS find no server.

// bridgeFilter is 1 if packets within a bridge pass through iptables.
const bridgeFilter = "/proc/sys/net/bridge/bridge-nf-call-iptables"

// podsKeptApart explains how this machine's firewall blocks traffic between Pods on
// different nodes, and which command allows it; "" if it does not block it, or if
// that cannot be determined.
func podsKeptApart(ctx context.Context, command, bridgeFilter string) string {
	if command == "docker" {
		return ""
	}
	if on, err := os.ReadFile(bridgeFilter); err != nil || strings.TrimSpace(string(on)) != "1" {
		return ""
	}
	out, err := exec.CommandContext(ctx, "iptables", "--wait", "-S").Output()
	if err != nil {
		return ""
	}
	rules := strings.Split(string(out), "\n")
	open := slices.ContainsFunc(rules, func(rule string) bool {
		return strings.Contains(rule, "-s "+podSubnet+" -d "+podSubnet+" ") && strings.HasSuffix(rule, "-j ACCEPT")
	})
	if open || !slices.Contains(rules, "-P FORWARD DROP") {
		return ""
	}
	chain := "FORWARD"
	if slices.Contains(rules, "-N DOCKER-USER") {
		chain = "DOCKER-USER"
	}
	return fmt.Sprintf("; this machine's firewall (iptables: -P FORWARD DROP, as Docker sets it) may drop what Pods on one node send to Pods on another: "+
		"let it pass with \"sudo iptables -I %s -s %s -d %s -j ACCEPT\"", chain, podSubnet, podSubnet)
}

// apart returns podsKeptApart for the cluster's runtime, and determines it only
// once.
func (p *plan) apart(ctx context.Context) string {
	if p.keptApart == nil {
		said := podsKeptApart(ctx, p.state.Runtime, bridgeFilter)
		p.keptApart = &said
	}
	return *p.keptApart
}
