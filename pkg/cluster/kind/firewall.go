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
// Docker lets nothing pass that the machine forwards but what belongs to its own
// networks. With bridge-nf-call-iptables, which it turns on, that goes for what
// passes within a bridge, too, so for the networks of other runtimes. Their own
// rules accept the addresses of nodes; what Pods on one node send to Pods on another
// is dropped. Agents that cannot ask the cluster's DNS find no server.

// bridgeFilter is 1 where what passes within a bridge has to pass iptables.
const bridgeFilter = "/proc/sys/net/bridge/bridge-nf-call-iptables"

// podsKeptApart says how this machine's firewall keeps Pods on different nodes from
// each other, and what opens it; "" where it does not, or where that is not seen.
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

// apart is podsKeptApart for the cluster's runtime, looked at once.
func (p *plan) apart(ctx context.Context) string {
	if p.keptApart == nil {
		said := podsKeptApart(ctx, p.state.Runtime, bridgeFilter)
		p.keptApart = &said
	}
	return *p.keptApart
}
