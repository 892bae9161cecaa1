// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// Down removes a cluster: its processes, its directory, its sockets, and its
// context. It needs no readable state, so it also removes what a killed command
// left behind. It returns cluster.ErrNotFound if there was nothing at all.
func (p *Provider) Down(ctx context.Context, o cluster.DownOptions) error {
	l, err := NewLayout(p.root, o.Name)
	if err != nil {
		return err
	}
	if o.Progress == nil {
		o.Progress = cluster.Silent
	}
	unlock, err := l.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	defer l.RemoveTraces()
	// Read the state before deleting it. For a cluster without readable state,
	// remove any context that has its name.
	state, stateErr := l.readState()
	previous := l.PreviousContext()
	left, err := process.FindMarked(l.Dir)
	if err != nil {
		return err
	}
	found := exists(l.Dir) || exists(l.FailedLogs()) || len(left) > 0
	if found {
		err = cluster.Step(o.Progress, "Stopping and removing "+cluster.ContextName(l.Name), func() (string, error) {
			return "", errors.Join(l.remove(ctx), os.RemoveAll(l.FailedLogs()))
		})
		if err != nil {
			return err
		}
	}
	server := ""
	if stateErr == nil {
		server = (&plan{Layout: l, state: state}).serverURL()
	}
	hadContext, err := l.RemoveContexts(server, previous, append(state.Kubeconfigs, o.Kubeconfig))
	if err == nil && !found && !hadContext {
		err = fmt.Errorf("%w: %q: nothing to remove", cluster.ErrNotFound, l.Name)
	}
	return err
}

// remove stops all processes of the cluster and deletes its files.
func (l Layout) remove(ctx context.Context) error {
	if err := l.stop(ctx); err != nil {
		return err
	}
	var errs []error
	// Keep a directory for sockets in a shared place that does not belong to
	// this user.
	if exists(l.RunDir) && ownedAndPrivate(l.RunDir) == nil {
		errs = append(errs, os.RemoveAll(l.RunDir))
		if filepath.Dir(l.RunDir) != l.Dir {
			cluster.RemoveEmpty(filepath.Dir(l.RunDir))
		}
	}
	errs = append(errs, os.RemoveAll(l.Dir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing the cluster's files: %w", err)
	}
	return nil
}

// stop ends all processes of the cluster: through the supervisor, which knows
// the order, and then any that are left.
func (l Layout) stop(ctx context.Context) error {
	client := process.NewClient(l.SupervisorSocket())
	if err := client.Shutdown(ctx); err == nil {
		limit, cancel := context.WithTimeout(ctx, 2*process.DefaultStopTimeout)
		defer cancel()
		_ = poll(limit, 50*time.Millisecond, func() (bool, error) {
			left, err := process.FindMarked(l.Dir)
			return len(left) == 0, err
		})
	}
	_, err := process.KillMarked(ctx, l.Dir, process.DefaultStopTimeout)
	return err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
