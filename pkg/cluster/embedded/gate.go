// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/cluster/embedded/nodegate"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// kubeletClient is the common name of kube-apiserver's client certificate for nodes.
const kubeletClient = "kube-apiserver-kubelet-client"

// nodeGate protects the simulated nodes; it is a hidden command of fairlead itself.
func (p *plan) nodeGate() process.Spec {
	listens := &process.Probe{URL: "tcp://" + p.nodeGateConfig().Listen}
	return p.spec(progNodeGate, "fairlead", []string{"internal", "node-gate", "--config", p.nodeGateConfigFile()}, listens, progKwok)
}

func (p *plan) nodeGateConfigFile() string { return filepath.Join(p.ConfigDir(), "node-gate.json") }

func (p *plan) nodeGateConfig() nodegate.Config {
	return nodegate.Config{
		Listen:   net.JoinHostPort(p.state.HostIP, p.port(portNodeGate)),
		Backend:  net.JoinHostPort(loopback, p.port(portKwok)),
		CertFile: p.PKI("kubelet.crt"), KeyFile: p.PKI("kubelet.key"),
		ClientCAFile: p.PKI("ca.crt"), ClientName: kubeletClient,
		Secret: p.nodeSecret,
	}
}

// hasNetwork reports whether the nodes have an address other than loopback.
func (s State) hasNetwork() bool {
	ip := net.ParseIP(s.HostIP)
	return ip == nil || !ip.IsLoopback()
}

// addressHolds reports whether nodes can keep their address: the machine still has
// it, and if it is loopback, the machine has no other.
func (s State) addressHolds() bool {
	if !s.hasNetwork() {
		return hostAddress() == loopback
	}
	return ownAddress(s.HostIP)
}

// addressFault returns an error with a hint if the machine no longer has the nodes'
// address, or nil.
func (s State) addressFault(name string) error {
	if !s.hasNetwork() || ownAddress(s.HostIP) {
		return nil
	}
	return check.WithHint(fmt.Errorf("this machine no longer has the address %s, at which the nodes are reached", s.HostIP),
		"\"fairlead up --name %s\" moves the nodes to the machine's present address", name)
}

// noteNetwork reports what a cluster without a network lacks.
func (p *plan) noteNetwork(reporter progress.Reporter) {
	if p.state.hasNetwork() {
		return
	}
	progress.Note(reporter, "No network: this machine has no address but loopback. logs, exec, attach and port-forward work;\n"+
		"node proxy, Service proxy, and webhooks and aggregated APIs behind a Service do not.\n"+
		"With a network, run \"fairlead up --name %s\" again.", p.Name)
}

// onlyGate returns the flags that let an agent reach the node gate on loopback and
// nothing else. By default agents do not dial loopback, but a machine without a
// network has no other address to dial. If a bundle sets one of the flags in
// extraArgs, its value stays.
func (p *plan) onlyGate() []component.Flag {
	if p.state.hasNetwork() {
		return nil
	}
	flags := []component.Flag{
		component.PlainFlag("allow-destinations", p.nodeGateConfig().Listen),
		component.PlainFlag("deny-destinations", ""),
	}
	for _, arg := range p.bundle.Konnectivity.Agent.ExtraArgs {
		name := strings.ReplaceAll(arg.Name, "_", "-")
		if slices.ContainsFunc(flags, func(f component.Flag) bool { return f.Name == name }) {
			return nil
		}
	}
	return flags
}

// ownAddress reports whether the machine still has an address.
func ownAddress(ip string) bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		if ipNet, ok := a.(*net.IPNet); ok && ipNet.IP.Equal(net.ParseIP(ip)) {
			return true
		}
	}
	return false
}

// hostAddress returns an address of this machine that is not loopback, or loopback
// if there is none. With loopback, the API server refuses to proxy to nodes and
// Services, and the checks report that.
func hostAddress() string {
	if address := check.HostAddress(); address != "" {
		return address
	}
	return loopback
}
