package embedded

import (
	"net"
	"path/filepath"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/cluster/embedded/nodegate"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// kubeletClient is the common name of the certificate with which kube-apiserver
// speaks to nodes.
const kubeletClient = "kube-apiserver-kubelet-client"

// nodeGate is the door to the simulated nodes, a hidden command of fairlead itself.
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

// ownAddress tells whether the machine still has an address.
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

// hostAddress returns an address of this machine that is not loopback, or
// loopback when there is none: then the API server's proxies to nodes and
// Services refuse to work, and the checks say so.
func hostAddress() string {
	if address := check.HostAddress(); address != "" {
		return address
	}
	return loopback
}
