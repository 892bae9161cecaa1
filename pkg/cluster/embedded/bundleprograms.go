// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"path/filepath"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// The parts of the bundle run with the arguments that pkg/bundle renders for
// Pods. Overrides replace only what cannot be the same on one host without
// containers: paths, port numbers and listen addresses.

// tunnelServer returns the Konnectivity server.
func (p *plan) tunnelServer() process.Spec {
	ports := map[string]string{"agentport": portTunnelAgents, "adminport": portTunnelAdmin, "healthport": portTunnelHealth}
	proc := component.LocalProcess(konnectivity.Server(p.bundle), component.LocalOptions{
		Path: p.localPath(""),
		Port: p.mapPort(ports),
		Extra: append(p.localDestinations(),
			component.PlainFlag("agent-bind-address", loopback),
			component.PlainFlag("admin-bind-address", loopback),
			component.PlainFlag("health-bind-address", loopback),
			component.PlainFlag("server-id", p.Name),
			component.PlainFlag("server-count", "1"),
			component.PlainFlag("state-socket", p.StateSocket()),
			// The socket is enough, and a port would be one of the machine's.
			component.PlainFlag("state-port", "0"),
		),
	})
	probe := &process.Probe{URL: p.url("http", portTunnelHealth, "/healthz")}
	// The server validates the agents' tokens with the API server, and would
	// answer them with errors before that is ready.
	return p.bundlePart(progTunnelServer, proc, probe, progAPIServer)
}

// tunnelAgent returns the agent with index i.
func (p *plan) tunnelAgent(i int) process.Spec {
	name := agentName(i)
	extra := []component.Flag{
		component.PlainFlag("proxy-server-host", loopback),
		component.PlainFlag("admin-bind-address", loopback),
		component.PlainFlag("health-server-host", loopback),
		component.PlainFlag("agent-id", name),
	}
	extra = append(extra, p.onlyGate()...)
	needs := []string{p.Token(name)}
	if p.countsLeases() {
		extra = append(extra, component.PlainFlag("kubeconfig", p.Kubeconfig(name)))
		needs = append(needs, p.Token(apiToken(name)))
	}
	ports := map[string]string{"agentport": portTunnelAgents, "adminport": name + "-admin", "healthport": name + "-health"}
	proc := component.LocalProcess(konnectivity.Agent(p.bundle), component.LocalOptions{
		Path: p.localPath(name),
		Port: p.mapPort(ports), Extra: extra,
	})
	p.expandEnv(proc.Args, i)
	probe := &process.Probe{URL: p.url("http", name+"-health", "/readyz")}
	spec := p.bundlePart(name, proc, probe, progTunnelServer)
	spec.NeedsFiles = needs
	return spec
}

// countsLeases reports whether agents count the servers' Leases, for which they
// need an identity at the API server. In a Pod they always have one.
func (p *plan) countsLeases() bool {
	return p.tunnel() && ptr.Deref(p.bundle.Konnectivity.LeaseCounting, false)
}

// apiToken is the name of the token that an agent uses for the API server.
func apiToken(agent string) string { return agent + "-api" }

// agentNode returns the simulated node that an agent is assumed to run on: the
// one with the same index, modulo the number of nodes.
func (p *plan) agentNode(agent int) string { return nodeName(agent % p.state.Nodes) }

// expandEnv expands the variables that the kubelet would expand.
func (p *plan) expandEnv(args []string, agent int) {
	values := strings.NewReplacer(
		"$(NODE_NAME)", p.agentNode(agent),
		"$(HOST_IP)", p.state.HostIP,
	)
	for i := range args {
		args[i] = values.Replace(args[i])
	}
}

// secondScheduler returns one replica of the second scheduler.
func (p *plan) secondScheduler(i int) process.Spec {
	name := schedulerName(i)
	c := scheduler.Component(p.bundle)
	kubeconfig := p.Kubeconfig(name)
	proc := component.LocalProcess(c, component.LocalOptions{
		Path: p.schedulerPath(name),
		Port: func(string, int32) int32 { return int32(p.state.Ports[name]) },
		Extra: []component.Flag{
			component.PlainFlag("bind-address", loopback),
			component.PlainFlag("secure-port", p.port(name)),
			component.PlainFlag("authentication-kubeconfig", kubeconfig),
			component.PlainFlag("authorization-kubeconfig", kubeconfig),
			component.PlainFlag("tls-cert-file", p.PKI("components.crt")),
			component.PlainFlag("tls-private-key-file", p.PKI("components.key")),
		},
	})
	probe := &process.Probe{URL: p.url("https", name, "/readyz"), CAFile: p.PKI("ca.crt")}
	spec := p.bundlePart(name, proc, probe, progAPIServer)
	spec.NeedsFiles = []string{p.Token(name)}
	return spec
}

// mapPort maps a component's named ports to the cluster's port numbers.
func (p *plan) mapPort(names map[string]string) func(string, int32) int32 {
	return func(name string, port int32) int32 {
		if user, ok := names[name]; ok {
			return int32(p.state.Ports[user])
		}
		return port
	}
}

// schedulerConfig is the configuration file of one replica. Each replica has
// its own file, because it names the kubeconfig; in a Pod the kubeconfig is
// omitted.
func (p *plan) schedulerConfig(name string) string {
	return filepath.Join(p.ConfigDir(), name+".yaml")
}

// schedulerPath maps the paths in a scheduler's Pod, whose only file is the
// configuration.
func (p *plan) schedulerPath(name string) func(string) string {
	return func(path string) string {
		if strings.HasSuffix(path, ".yaml") {
			return p.schedulerConfig(name)
		}
		return path
	}
}

// podPath maps the paths that Kubernetes mounts into a Pod: the cluster's CA
// and projected tokens.
func (p *plan) podPath(path, tokenName string) string {
	if path == konnectivity.CAFile {
		return p.PKI("ca.crt")
	}
	if strings.HasPrefix(path, "/var/run/secrets/") && tokenName != "" {
		return p.Token(tokenName)
	}
	return path
}

// egressFile is kube-apiserver's egress selector configuration.
func (p *plan) egressFile() string {
	return filepath.Join(p.ConfigDir(), "egress-selector-configuration.yaml")
}

// routedBundle enables aggregator routing, so kube-apiserver sends requests for
// Services to endpoint IPs: without kube-proxy, cluster IPs do not work here.
func (p *plan) routedBundle() *v1alpha1.Bundle {
	b := p.bundle.DeepCopy()
	b.Aggregation.EnableAggregatorRouting = ptr.To(true)
	return b
}

// cutDir returns the part of path below dir.
func cutDir(path, dir string) (string, bool) {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
	return rest, ok
}
