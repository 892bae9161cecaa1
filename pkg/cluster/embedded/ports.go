// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// loopback is the address that all programs listen on.
const loopback = cluster.Loopback

// Names of ports. There may be several agents and second schedulers: see
// agentName, schedulerName.
const (
	portEtcdClient        = "etcd-client"
	portEtcdPeer          = "etcd-peer"
	portEtcdMetrics       = "etcd-metrics"
	portAPIServer         = "kube-apiserver"
	portControllerManager = "kube-controller-manager"
	portScheduler         = "kube-scheduler"
	portKwok              = "kwok"
	portNodeGate          = "node-gate"
	portTunnelAgents      = "konnectivity-server-agents"
	portTunnelAdmin       = "konnectivity-server-admin"
	portTunnelHealth      = "konnectivity-server-health"
	portGateway           = "fairlead-gateway"
	portGatewayHealth     = "fairlead-gateway-health"
	portTunnelAPI         = "fairlead-apiserver"
	portOperator          = "fairlead-operator"
	portOperatorHealth    = "fairlead-operator-health"
	portOperatorMetrics   = "fairlead-operator-metrics"
)

// portNames lists the names of all ports in a cluster of this size.
func portNames(agents, schedulers int) []string {
	names := []string{
		portEtcdClient, portEtcdPeer, portEtcdMetrics, portAPIServer, portControllerManager,
		portScheduler, portKwok, portNodeGate, portTunnelAgents, portTunnelAdmin, portTunnelHealth,
	}
	for i := range agents {
		names = append(names, agentName(i)+"-health", agentName(i)+"-admin")
	}
	for i := range schedulers {
		names = append(names, schedulerName(i))
	}
	return names
}

// choosePorts finds a free loopback port for every name. It keeps fixed ports,
// which must be free. It does not reserve the ports: if another process takes
// one first, the log of the program that needs it shows that.
func choosePorts(ctx context.Context, names []string, fixed map[string]int, hostIP string) (map[string]int, error) {
	ports := map[string]int{}
	for name, port := range fixed {
		if err := cluster.CheckPort(ctx, name, port, loopback); err != nil {
			return nil, err
		}
		ports[name] = port
	}
	taken := []int{}
	for _, port := range ports {
		taken = append(taken, port)
	}
	for _, name := range names {
		if _, ok := ports[name]; ok {
			continue
		}
		port, err := cluster.FreePort(ctx, taken, loopback, hostIP)
		if err != nil {
			return nil, fmt.Errorf("finding a port for %s: %w", name, err)
		}
		ports[name] = port
		taken = append(taken, port)
	}
	return ports, nil
}

// awaitPorts retries portsFree: the kernel closes the sockets of killed programs
// only a moment after they have exited.
func awaitPorts(ctx context.Context, ports map[string]int, hostIP string) error {
	var last error
	limit, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_ = poll(limit, 50*time.Millisecond, func() (bool, error) {
		last = portsFree(ctx, ports, hostIP)
		return !errors.Is(last, cluster.ErrPortInUse), nil
	})
	return last
}

// portsFree checks that every stored port is still free.
func portsFree(ctx context.Context, ports map[string]int, hostIP string) error {
	for name, port := range ports {
		address := loopback
		if name == portNodeGate || name == portTunnelAPI || name == portOperator {
			address = hostIP
		}
		if err := cluster.CheckPort(ctx, name, port, address); err != nil {
			return err
		}
	}
	return nil
}

// agentName and schedulerName return the names of programs of which there are
// several.
func agentName(i int) string     { return fmt.Sprintf("konnectivity-agent-%d", i) }
func schedulerName(i int) string { return fmt.Sprintf("second-scheduler-%d", i) }
