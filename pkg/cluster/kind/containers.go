// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	kindcluster "sigs.k8s.io/kind/pkg/cluster"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// container is the container of a node or of the load balancer.
type container struct {
	name    string
	running bool
	// mounts are the paths on this machine that it mounts.
	mounts []string
	// ports are the ports on this machine that are published to it.
	ports []string
	// addresses are its own in the networks of the container runtime; none while
	// it is stopped.
	addresses []netip.Addr
}

// containers inspects all containers of a kind cluster and returns them by name.
func (r *runtime) containers(ctx context.Context, library *kindcluster.Provider, name string) ([]container, error) {
	nodes, err := library.ListNodes(kindName(name))
	if err != nil {
		return nil, fmt.Errorf("listing the containers of %s: %w", kindName(name), err)
	}
	if len(nodes) == 0 {
		return nil, nil
	}
	args := []string{"container", "inspect"}
	for _, n := range nodes {
		args = append(args, n.String())
	}
	out, err := r.run(ctx, args...)
	if err != nil {
		return nil, err
	}
	list, err := parseContainers(out)
	if err != nil {
		return nil, fmt.Errorf("%s container inspect: %w", r.command, err)
	}
	return list, nil
}

// parseContainers parses the output that Docker, Podman and nerdctl have in
// common, and sorts it by name.
func parseContainers(text string) ([]container, error) {
	type ports map[string][]struct{ HostPort string }
	var said []struct {
		Name            string
		State           struct{ Running bool }
		Mounts          []struct{ Source string }
		HostConfig      struct{ PortBindings ports } // also set for a stopped container
		NetworkSettings struct {
			Ports    ports // older nerdctl sets this instead
			Networks map[string]struct{ IPAddress, GlobalIPv6Address string }
		}
	}
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		return nil, fmt.Errorf("unexpected output: %w", err)
	}
	var list []container
	for _, s := range said {
		c := container{name: strings.TrimPrefix(s.Name, "/"), running: s.State.Running} // Docker adds the slash
		for _, m := range s.Mounts {
			c.mounts = append(c.mounts, m.Source)
		}
		for _, all := range []ports{s.HostConfig.PortBindings, s.NetworkSettings.Ports} {
			for _, published := range all {
				for _, p := range published {
					c.ports = append(c.ports, p.HostPort)
				}
			}
		}
		for _, n := range s.NetworkSettings.Networks {
			for _, text := range []string{n.IPAddress, n.GlobalIPv6Address} {
				if a, err := netip.ParseAddr(text); err == nil { // "" in a network without that IP family
					c.addresses = append(c.addresses, a)
				}
			}
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b container) int { return strings.Compare(a.name, b.name) })
	return list, nil
}

// ours reports whether the containers belong to this cluster and not to another
// one of the same name: nodes mount files from its directory. The load balancer
// mounts nothing. If the nodes were removed by hand, the load balancer is
// identified by its port.
func (p *plan) ours(list []container) bool {
	return slices.ContainsFunc(list, func(c container) bool {
		if c.name == p.loadBalancer() && len(list) == 1 {
			return slices.Contains(c.ports, strconv.Itoa(p.state.Port))
		}
		return slices.ContainsFunc(c.mounts, func(m string) bool { return strings.HasPrefix(m, p.Dir+string(os.PathSeparator)) })
	})
}

// roomPerNode is what a node writes to disk in the first hours, in addition to
// its copy of the images.
const roomPerNode = 300 << 20

// checkRoom fails if the runtime's own disk is too full: every node gets its own
// copy of the images in the node image. It can check only a disk of this machine.
func (r *runtime) checkRoom(ctx context.Context, image string, nodes int) error {
	field := "DockerRootDir"
	if r.command == "podman" {
		field = "Store.GraphRoot"
	}
	dir, err := r.run(ctx, "info", "--format={{."+field+"}}")
	if err != nil || dir == "" {
		return nil //nolint:nilerr // nerdctl does not report it; the runtime's own error must do
	}
	if _, err := os.Stat(dir); err != nil {
		return nil //nolint:nilerr // the disk is on another machine
	}
	size := uint64(0)
	if text, err := r.run(ctx, "image", "inspect", "--format={{.Size}}", r.imageName(image)); err == nil {
		size, _ = strconv.ParseUint(text, 10, 64)
	}
	return cluster.CheckFree(dir, uint64(nodes)*(size+roomPerNode),
		fmt.Sprintf("with \"%[1]s system prune\" for example, or choose fewer --workers: it is %[1]s's disk, and %[2]d nodes are to be made, each with its own copy of the images", r.command, nodes))
}
