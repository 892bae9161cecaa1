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

// Down implements cluster.Provider: it removes the cluster's processes, its directory,
// its sockets, and its context.
func (p *Provider) Down(ctx context.Context, o cluster.DownOptions) error {
	l, err := NewLayout(p.root, o.Name)
	if err != nil {
		return err
	}
	return (&plan{Layout: l}).lifecycle().Down(ctx, o)
}

// Left implements cluster.Driver.
func (p *plan) Left() (bool, error) {
	left, err := process.FindMarked(p.Dir)
	return exists(p.Dir) || exists(p.FailedLogs()) || len(left) > 0, err
}

// Remove implements cluster.Driver: it stops all processes of the cluster and deletes its
// files.
func (p *plan) Remove(ctx context.Context) error {
	if err := p.stop(ctx); err != nil {
		return err
	}
	var errs []error
	// Keep a directory for sockets in a shared place that does not belong to
	// this user.
	if exists(p.RunDir) && ownedAndPrivate(p.RunDir) == nil {
		errs = append(errs, os.RemoveAll(p.RunDir))
		if filepath.Dir(p.RunDir) != p.Dir {
			cluster.RemoveEmpty(filepath.Dir(p.RunDir))
		}
	}
	errs = append(errs, os.RemoveAll(p.Dir))
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
