package kind

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	kindcluster "sigs.k8s.io/kind/pkg/cluster"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// container is a node's, or the load balancer's.
type container struct {
	name    string
	running bool
	// mounts are the paths of this machine that it mounts.
	mounts []string
	// ports are those of this machine that lead to it.
	ports []string
}

// containers looks at all containers of a kind cluster, by name.
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

// parseContainers reads what Docker, Podman and nerdctl say alike, sorted by name.
func parseContainers(text string) ([]container, error) {
	type ports map[string][]struct{ HostPort string }
	var said []struct {
		Name            string
		State           struct{ Running bool }
		Mounts          []struct{ Source string }
		HostConfig      struct{ PortBindings ports } // also of one that is stopped
		NetworkSettings struct{ Ports ports }        // what older nerdctl has instead
	}
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		return nil, fmt.Errorf("unexpected output: %w", err)
	}
	var list []container
	for _, s := range said {
		c := container{name: strings.TrimPrefix(s.Name, "/"), running: s.State.Running} // Docker has the slash
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
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b container) int { return strings.Compare(a.name, b.name) })
	return list, nil
}

// ours tells whether the containers are of this cluster, not of another of the
// same name: nodes mount files from its directory. The load balancer mounts
// nothing; where somebody has removed the nodes, it is known by its port.
func (p *plan) ours(list []container) bool {
	return slices.ContainsFunc(list, func(c container) bool {
		if c.name == p.loadBalancer() && len(list) == 1 {
			return slices.Contains(c.ports, strconv.Itoa(p.state.Port))
		}
		return slices.ContainsFunc(c.mounts, func(m string) bool { return strings.HasPrefix(m, p.Dir+string(os.PathSeparator)) })
	})
}

// roomPerNode is what a node writes beside its share of the image in the first hours.
const roomPerNode = 300 << 20

// checkRoom refuses to begin where the runtime's own disk is too full: every node
// gets its own copy of the images in the node image. It knows only of a disk of
// this machine.
func (r *runtime) checkRoom(ctx context.Context, image string, nodes int) error {
	field := "DockerRootDir"
	if r.command == "podman" {
		field = "Store.GraphRoot"
	}
	dir, err := r.run(ctx, "info", "--format={{."+field+"}}")
	if err != nil || dir == "" {
		return nil //nolint:nilerr // nerdctl does not tell; without it the runtime's own error has to do
	}
	if _, err := os.Stat(dir); err != nil {
		return nil //nolint:nilerr // on another machine
	}
	size := uint64(0)
	if text, err := r.run(ctx, "image", "inspect", "--format={{.Size}}", r.imageName(image)); err == nil {
		size, _ = strconv.ParseUint(text, 10, 64)
	}
	return cluster.CheckFree(dir, uint64(nodes)*(size+roomPerNode),
		fmt.Sprintf("with \"%[1]s system prune\" for example, or choose fewer --workers: it is %[1]s's disk, and %[2]d nodes are to be made, each with its own copy of the images", r.command, nodes))
}
