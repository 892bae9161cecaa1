// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/tunnelcondition"
)

// lookInterval is how often the agents' readiness is read: the supervisor itself probes them every few seconds.
const lookInterval = time.Second

// agentProcesses are agents that run as processes, each assumed to be on a simulated node. For the controller of
// the condition TunnelReady they replace the DaemonSet's Pods.
type agentProcesses struct {
	// nodes holds the agents' nodes, by the program's name.
	nodes  map[string]string
	status func() []process.Status
}

// agentNodes returns the nodes of a cluster's agents; none without a tunnel.
func (p *plan) agentNodes() map[string]string {
	if !p.tunnel() {
		return nil
	}
	nodes := map[string]string{}
	for i := range p.state.Agents {
		nodes[agentName(i)] = p.agentNode(i)
	}
	return nodes
}

// Start implements tunnelcondition.Agents.
func (a agentProcesses) Start(ctx context.Context, changed func(node string)) error {
	known := a.ready()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(lookInterval):
			}
			now := a.ready()
			for agent, node := range a.nodes {
				if known[agent] != now[agent] {
					changed(node)
				}
			}
			known = now
		}
	}()
	return nil
}

// On implements tunnelcondition.Agents.
func (a agentProcesses) On(node string) (string, error) {
	var names []string
	for agent := range a.ready() {
		if a.nodes[agent] == node {
			names = append(names, agent)
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	return slices.Min(names), nil
}

func (a agentProcesses) ready() map[string]bool {
	ready := map[string]bool{}
	for _, s := range a.status() {
		if _, agent := a.nodes[s.Name]; agent && s.Ready {
			ready[s.Name] = true
		}
	}
	return ready
}

// keepTunnelConditions maintains the nodes' condition TunnelReady from when the API server is ready until ctx
// ends.
func keepTunnelConditions(ctx context.Context, supervisor *process.Supervisor, todo supervision) {
	if len(todo.AgentNodes) == 0 {
		return
	}
	logger := klog.FromContext(ctx)
	serving := func() (bool, error) {
		return slices.ContainsFunc(supervisor.Status(), func(s process.Status) bool { return s.Name == progAPIServer && s.Ready }), nil
	}
	if err := poll(ctx, 100*time.Millisecond, serving); err != nil {
		return // ctx has ended
	}
	client, err := newClient(todo.Kubeconfig)
	if err != nil {
		logger.Error(err, "Nodes get no condition TunnelReady")
		return
	}
	controller, err := tunnelcondition.New(client, agentProcesses{nodes: todo.AgentNodes, status: supervisor.Status})
	if err != nil {
		logger.Error(err, "Nodes get no condition TunnelReady")
		return
	}
	if err := controller.Run(ctx); err != nil && ctx.Err() == nil {
		logger.Error(err, "The nodes' condition TunnelReady is not kept any more")
	}
}
