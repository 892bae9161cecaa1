package kind

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// clusterLabel is by what kind finds the containers of a cluster.
const clusterLabel = "io.x-k8s.kind.cluster"

// stragglerLimit bounds the wait for commands that outlived an Up that was
// killed; one takes about a second to make a container.
const stragglerLimit = 30 * time.Second

// removeAll removes the cluster, and the containers of it that are still being
// made: the container runtime's commands outlive an Up that was killed. Containers
// of the same name that somebody else made meanwhile are left alone.
func (p *plan) removeAll(ctx context.Context, rt *runtime) error {
	ctx, cancel := context.WithTimeout(ctx, stragglerLimit)
	defer cancel()
	library := rt.kind(newLogger(cluster.Silent))
	for {
		making := stragglers(kindName(p.Name)) // before the containers are listed
		list, err := rt.containers(ctx, library, p.Name)
		if err != nil {
			return err
		}
		if len(list) > 0 && !p.ours(list) {
			return os.RemoveAll(p.Dir)
		}
		if err := p.remove(ctx, library); err != nil || len(making) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("processes %v of an earlier \"up\" are still making containers of %s: run the command again when they have ended", making, kindName(p.Name))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// stragglers are the processes that are making a container of a kind cluster.
// Where the system does not tell, there are none.
func stragglers(name string) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var pids []int
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		args := strings.Split(string(data), "\x00")
		if slices.Contains(args, "run") && slices.Contains(args, clusterLabel+"="+name) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
