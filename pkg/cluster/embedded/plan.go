// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// plan holds everything that determines the arguments of a cluster's programs.
// Every Up computes it again, so that a new fairlead version or a new address of
// the machine takes effect when the cluster is started again.
type plan struct {
	Layout
	options upOptions
	state   State
	bundle  *v1alpha1.Bundle
	// bins are the programs' executables by name.
	bins map[string]string
	// nodeSecret is known only to the node gate and kwok; see nodegate.
	nodeSecret string
	// began is when this command started the programs; zero if they already ran.
	began time.Time
}

// Names of programs, in status and log files. They are also keys of bins where
// an executable has the same name.
const (
	progEtcd              = "etcd"
	progAPIServer         = "kube-apiserver"
	progControllerManager = "kube-controller-manager"
	progScheduler         = "kube-scheduler"
	progKwok              = "kwok"
	progNodeGate          = "node-gate"
	progTunnelServer      = "konnectivity-server"
	progGateway           = "fairlead-gateway"
	progTunnelAPI         = "fairlead-apiserver"
	progOperator          = "fairlead-operator"
)

// programs lists the programs that the supervisor runs, in start order.
func (p *plan) programs() ([]process.Spec, error) {
	specs := []process.Spec{
		p.etcd(), p.apiServer(), p.controllerManager(), p.scheduler(), p.kwok(), p.nodeGate(),
	}
	if p.tunnel() {
		specs = append(specs, p.tunnelServer())
		for i := range p.state.Agents {
			specs = append(specs, p.tunnelAgent(i))
		}
	}
	for i := range p.state.Schedulers {
		specs = append(specs, p.secondScheduler(i))
	}
	if gateway.Enabled(p.bundle) {
		specs = append(specs, p.gateway())
	}
	if tunnelapi.Enabled(p.bundle) {
		specs = append(specs, p.tunnelAPI())
	}
	if p.state.Operator {
		specs = append(specs, p.operator())
	}
	if err := process.Validate(specs); err != nil {
		return nil, fmt.Errorf("the list of programs: %w", err)
	}
	return specs, nil
}

// tunnel reports whether Konnectivity is enabled in the bundle.
func (p *plan) tunnel() bool { return *p.bundle.Konnectivity.Enabled }

// spec fills in what all programs have in common.
func (p *plan) spec(name, binary string, args []string, ready *process.Probe, after ...string) process.Spec {
	return process.Spec{
		Name: name, Path: p.bins[binary], Args: args, LogFile: p.Log(name),
		Ready: ready, After: after,
		// Programs that look into the home directory must not find the user's
		// files.
		Env: []string{"HOME=" + p.Dir},
	}
}

// bundlePart is spec for a part of the bundle, which has its own environment.
func (p *plan) bundlePart(name string, proc component.Process, ready *process.Probe, after ...string) process.Spec {
	spec := p.spec(name, proc.Command, proc.Args, ready, after...)
	spec.Env = append(spec.Env, proc.Env...)
	return spec
}

// port returns the number of a named port as text.
func (p *plan) port(name string) string { return strconv.Itoa(p.state.Ports[name]) }

// url returns a URL of a program on loopback.
func (p *plan) url(scheme, port, path string) string {
	return scheme + "://" + net.JoinHostPort(loopback, p.port(port)) + path
}

// serverURL returns the API server's URL.
func (p *plan) serverURL() string { return p.url("https", portAPIServer, "") }

// localPath maps paths of the bundle, which are those of a control plane node or
// of a Pod, to this cluster's files.
func (p *plan) localPath(tokenName string) func(string) string {
	b := p.bundle
	exact := map[string]string{
		b.ControlPlane.EgressSelectorFile: p.egressFile(),
		b.Konnectivity.Server.Kubeconfig:  p.Kubeconfig("konnectivity-server"),
	}
	if uds := b.Konnectivity.Transport.UDS; uds != nil {
		exact[uds.Path] = p.TunnelSocket()
	}
	return func(path string) string {
		if local, ok := exact[path]; ok {
			return local
		}
		if rest, ok := cutDir(path, b.ControlPlane.PKIDir); ok {
			return p.PKI(rest)
		}
		return p.podPath(path, tokenName)
	}
}

// flags renders flags of the bundle for a local process.
func (p *plan) flags(flags []component.Flag) []string {
	c := component.Component{Flags: flags}
	return component.LocalProcess(c, component.LocalOptions{Path: p.localPath("")}).Args
}
