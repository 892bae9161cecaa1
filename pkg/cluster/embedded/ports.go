package embedded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// loopback is where everything listens.
const loopback = cluster.Loopback

// Users of ports. Agents and second schedulers come several times: see agentName, schedulerName.
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
)

// portNames lists all users of ports in a cluster of this size.
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

// choosePorts finds a free loopback port for every name; fixed ones are kept
// and have to be free. Nothing stays open: who is faster takes the port, which
// the program then says in its log.
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

// awaitPorts is portsFree with patience: the kernel closes the sockets of killed
// programs a moment after they are gone.
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

// portsFree checks that every remembered port can be used again.
func portsFree(ctx context.Context, ports map[string]int, hostIP string) error {
	for name, port := range ports {
		address := loopback
		if name == portNodeGate {
			address = hostIP
		}
		if err := cluster.CheckPort(ctx, name, port, address); err != nil {
			return err
		}
	}
	return nil
}

// agentName and schedulerName name the programs that come several times.
func agentName(i int) string     { return fmt.Sprintf("konnectivity-agent-%d", i) }
func schedulerName(i int) string { return fmt.Sprintf("second-scheduler-%d", i) }
