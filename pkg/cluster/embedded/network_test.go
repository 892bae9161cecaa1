// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"net"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// dials reports whether an agent with these arguments dials the address.
func dials(t *testing.T, args []string, address string) bool {
	t.Helper()
	flags := flagMap(t, args)
	deny, ok := flags["deny-destinations"]
	if !ok {
		deny = destinations.DefaultDeny
	}
	var policy destinations.Policy
	var err error
	if policy.Deny, err = destinations.ParseRules(deny); err != nil {
		t.Fatal(err)
	}
	if policy.Allow, err = destinations.ParseRules(flags["allow-destinations"]); err != nil {
		t.Fatal(err)
	}
	host, _, _ := net.SplitHostPort(address)
	grant, err := policy.CheckName(host, 0)
	return err == nil && policy.CheckAddr(address, grant) == nil
}

// On a machine without a network the agents reach the node gate on loopback, and no
// other port or address. On any other machine they have the default rules.
func TestAgentsReachOnlyTheGateOnLoopback(t *testing.T) {
	p := testPlan(t, "konnectivity: {server: {proxyStrategies: [destHost, default]}, agent: {identifiers: 'ipv4=$(HOST_IP)'}}")
	p.state.HostIP = loopback
	gate := p.nodeGateConfig().Listen
	for i := range p.state.Agents {
		args := specs(t, p)[agentName(i)].Args
		if !dials(t, args, gate) {
			t.Errorf("%s does not dial the node gate %s: %q", agentName(i), gate, args)
		}
		for _, other := range []string{
			net.JoinHostPort(loopback, p.port(portKwok)), net.JoinHostPort(loopback, p.port(portEtcdClient)), "127.0.0.1:22",
			net.JoinHostPort("127.0.0.2", p.port(portNodeGate)), net.JoinHostPort("::1", p.port(portNodeGate)),
			net.JoinHostPort("0.0.0.0", p.port(portNodeGate)), "169.254.169.254:80", "192.0.2.7:443",
		} {
			if dials(t, args, other) {
				t.Errorf("%s dials %s", agentName(i), other)
			}
		}
	}
	p = testPlan(t, "")
	args := specs(t, p)[agentName(0)].Args
	if !dials(t, args, p.nodeGateConfig().Listen) || dials(t, args, "127.0.0.1:22") {
		t.Errorf("with a network the agents' rules are not the default ones: %q", args)
	}
}

// What a bundle says of the agents' destinations holds without a network, too.
func TestBundlesDestinationsAreKept(t *testing.T) {
	p := testPlan(t, "konnectivity: {agent: {extraArgs: [{name: allow_destinations, value: 192.0.2.0/24}]}}")
	p.state.HostIP = loopback
	if args := specs(t, p)[agentName(0)].Args; dials(t, args, p.nodeGateConfig().Listen) || dials(t, args, "127.0.0.1:22") {
		t.Errorf("the bundle's list of destinations is widened: %q", args)
	}
}

// Without a network the checks that kube-apiserver makes impossible are not made, and
// say why; logs, exec and port-forward are.
func TestChecksWithoutNetwork(t *testing.T) {
	p := testPlan(t, "")
	p.state.HostIP = loopback
	env := p.checkEnv(&rest.Config{})
	for id, want := range map[string]bool{
		"tunnel-logs": true, "tunnel-exec": true, "tunnel-port-forward": true, "tunnel": true,
		"tunnel-node-proxy": false, "tunnel-service-proxy": false, "tunnel-webhook": false,
	} {
		if made := env.SwitchedOff[id] == ""; made != want {
			t.Errorf("%s is made: %v (%s)", id, made, env.SwitchedOff[id])
		}
	}
	if env.AddressFault != nil {
		t.Errorf("loopback counts as an address that is gone: %v", env.AddressFault)
	}
	known := map[string]bool{}
	for _, c := range check.All() {
		known[c.ID] = true
	}
	for id := range env.SwitchedOff {
		if !known[id] {
			t.Errorf("%s is no check", id)
		}
	}
}

// When the machine loses the nodes' address, verify and status say what repairs it.
// 192.0.2.7 is reserved for documentation: no machine has it.
func TestLostAddress(t *testing.T) {
	p := testPlan(t, "")
	env := p.checkEnv(&rest.Config{})
	if env.AddressFault == nil || !strings.Contains(env.AddressFault.Error(), "192.0.2.7") || !strings.Contains(check.HintOf(env.AddressFault), "fairlead up --name dev") {
		t.Errorf("verify says %v, hint %q", env.AddressFault, check.HintOf(env.AddressFault))
	}
	if env.SwitchedOff["tunnel"] == "" {
		t.Error("the tunnel's checks are made although no call can succeed")
	}
	if p.state.addressHolds() {
		t.Error("up would leave the nodes at an address that is gone")
	}
	s := sample()
	s.Processes, s.AddressFault = []process.Status{{Name: "etcd", State: process.Running, Ready: true}}, "the address is gone: up"
	if s.Problem() != s.AddressFault {
		t.Errorf("status says %q", s.Problem())
	}
}

// A cluster that was started without a network moves to an address when there is one.
func TestAddressThatHolds(t *testing.T) {
	host := hostAddress()
	if got, want := (State{HostIP: loopback}).addressHolds(), host == loopback; got != want {
		t.Errorf("loopback holds: %v; the machine's address is %s", got, host)
	}
	if !(State{HostIP: host}).addressHolds() {
		t.Errorf("%s, the machine's own address, does not hold", host)
	}
}

type notes struct {
	progress.Reporter
	said []string
}

func (n *notes) Note(text string) { n.said = append(n.said, text) }

// "up" says once what does not work without a network, and nothing with one.
func TestNoteOfTheNetwork(t *testing.T) {
	p := testPlan(t, "")
	n := &notes{Reporter: progress.Silent}
	p.noteNetwork(n)
	if len(n.said) > 0 {
		t.Errorf("with a network: %q", n.said)
	}
	p.state.HostIP = loopback
	p.noteNetwork(n)
	p.noteNetwork(progress.Silent) // has no place for remarks
	if len(n.said) != 1 || !strings.Contains(n.said[0], "No network") || !strings.Contains(n.said[0], "--name dev") {
		t.Errorf("without a network: %q", n.said)
	}
}
