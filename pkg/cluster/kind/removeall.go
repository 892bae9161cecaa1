// SPDX-License-Identifier: Apache-2.0

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

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// clusterLabel is the label by which kind finds the containers of a cluster.
const clusterLabel = "io.x-k8s.kind.cluster"

// stragglerLimit bounds the wait for commands that outlived a killed Up; one takes
// about a second to create a container.
const stragglerLimit = 30 * time.Second

// removeAll removes the cluster, including its containers that are still being
// created: the container runtime's commands outlive a killed Up. It keeps
// containers of the same name that another program has created meanwhile.
func (p *plan) removeAll(ctx context.Context, rt *runtime) error {
	ctx, cancel := context.WithTimeout(ctx, stragglerLimit)
	defer cancel()
	library := rt.kind(newLogger(progress.Silent))
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

// stragglers returns the processes that are creating a container of a kind
// cluster. It returns none on a system without /proc.
func stragglers(name string) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var pids []int
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has exited
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
