package kind

import (
	"context"
	"encoding/json"
	"errors"
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
}

// containers looks at all containers of a kind cluster, by name.
func (r *runtime) containers(ctx context.Context, library *kindcluster.Provider, name string) ([]container, error) {
	nodes, err := library.ListNodes(kindName(name))
	if err != nil {
		return nil, fmt.Errorf("listing the containers of %s: %w", kindName(name), err)
	}
	var list []container
	if len(nodes) == 0 {
		return nil, nil
	}
	args := []string{"inspect", "--format={{json .Name}} {{.State.Running}} {{json .Mounts}}"}
	for _, n := range nodes {
		args = append(args, n.String())
	}
	out, err := r.run(ctx, args...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		c, err := parseContainer(line)
		if err != nil {
			return nil, fmt.Errorf("%s inspect: %w", r.command, err)
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b container) int { return strings.Compare(a.name, b.name) })
	return list, nil
}

func parseContainer(line string) (container, error) {
	fields := strings.SplitN(strings.TrimSpace(line), " ", 3)
	if len(fields) < 3 {
		return container{}, fmt.Errorf("unexpected line %q", line)
	}
	c := container{running: fields[1] == "true"}
	var mounts []struct{ Source string }
	if err := errors.Join(json.Unmarshal([]byte(fields[0]), &c.name), json.Unmarshal([]byte(fields[2]), &mounts)); err != nil {
		return c, err
	}
	c.name = strings.TrimPrefix(c.name, "/") // as Docker has it
	for _, m := range mounts {
		c.mounts = append(c.mounts, m.Source)
	}
	return c, nil
}

// ours tells whether the containers are of the cluster whose state is in dir:
// nodes mount files from it.
func ours(list []container, dir string) bool {
	return slices.ContainsFunc(list, func(c container) bool {
		return slices.ContainsFunc(c.mounts, func(m string) bool { return strings.HasPrefix(m, dir+string(os.PathSeparator)) })
	})
}

// roomPerNode is what a node writes beside its share of the image in the first hours.
const roomPerNode = 300 << 20

// checkRoom refuses to begin where the runtime's own disk is too full: every node
// gets its own copy of the images in the node image. It knows only of a disk of
// this machine.
func (r *runtime) checkRoom(ctx context.Context, image string, nodes int) error {
	dir, err := r.run(ctx, "info", "--format={{.DockerRootDir}}")
	if err != nil || dir == "" {
		return nil //nolint:nilerr // only Docker tells; without it the runtime's own error has to do
	}
	if _, err := os.Stat(dir); err != nil {
		return nil //nolint:nilerr // on another machine
	}
	size := uint64(0)
	if text, err := r.run(ctx, "image", "inspect", "--format={{.Size}}", image); err == nil {
		size, _ = strconv.ParseUint(text, 10, 64)
	}
	if err := cluster.CheckFree(dir, uint64(nodes)*(size+roomPerNode)); err != nil {
		return fmt.Errorf("%w (it is %s's; %d nodes are to be made, each with its own copy of the images)", err, r.command, nodes)
	}
	return nil
}
