// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	kindcluster "sigs.k8s.io/kind/pkg/cluster"
)

// thaw makes a node's containers killable. With cgroup v1, runc freezes a cgroup
// for a moment to change its limits. A process that is killed at that moment
// stays frozen, receives no signal, and the runtime cannot remove the node any
// more. So the script keeps new containers from starting, and thaws frozen
// cgroups.
const thaw = `[ -d /sys/fs/cgroup/freezer ] || exit 0
systemctl kill --signal=SIGKILL kubelet.service; systemctl stop --no-block kubelet.service containerd.service
for try in 1 2 3; do
  find /sys/fs/cgroup/freezer -mindepth 2 -name freezer.state 2>/dev/null | while read -r state; do
    grep -qs THAWED "$state" || echo THAWED >"$state"
  done
  sleep 0.2
done`

// thawLimit bounds thaw; a node that does not answer is removed nevertheless.
const thawLimit = 10 * time.Second

// deleteNodes removes all containers of the cluster. It succeeds if there are
// none, or if they disappear meanwhile. An interrupt does not stop it.
func deleteNodes(ctx context.Context, library *kindcluster.Provider, name, kubeconfig string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), thawLimit)
	defer cancel()
	nodes, err := library.ListInternalNodes(name)
	if err == nil {
		var all sync.WaitGroup
		for _, n := range nodes {
			all.Go(func() { _ = n.CommandContext(ctx, "sh", "-c", thaw).Run() })
		}
		all.Wait()
	}
	if err := library.Delete(name, kubeconfig); err != nil {
		return fmt.Errorf("removing the containers of %s: %w", name, explain(err))
	}
	return nil
}

// remove deletes the containers and the files of the cluster.
func (p *plan) remove(ctx context.Context, library *kindcluster.Provider) error {
	if err := deleteNodes(ctx, library, kindName(p.Name), kindKubeconfig(p.Home)); err != nil {
		return err
	}
	if err := os.RemoveAll(p.Dir); err != nil {
		return fmt.Errorf("removing the cluster's files: %w", err)
	}
	return nil
}
