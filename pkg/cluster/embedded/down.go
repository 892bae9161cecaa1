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

// DownOptions say which cluster to remove.
type DownOptions struct {
	// Name of the cluster.
	Name string
	// Kubeconfig is the file that has the cluster's context; "" means the user's usual one.
	Kubeconfig string
	// Progress is told about the steps.
	Progress cluster.Progress
}

// Down removes a cluster: its processes, its directory, its sockets, and its
// context. It needs no readable state, so that it also removes what a killed
// command left. It returns ErrNotFound when there was nothing at all.
func (p *Provider) Down(ctx context.Context, o DownOptions) error {
	l, err := NewLayout(p.root, o.Name)
	if err != nil {
		return err
	}
	if o.Progress == nil {
		o.Progress = cluster.Silent
	}
	unlock, err := l.lock()
	if err != nil {
		return err
	}
	defer unlock()
	defer func() {
		_ = os.Remove(l.lockFile())
		removeEmpty(filepath.Dir(l.failedLogs()))
		removeEmpty(filepath.Dir(l.Dir), filepath.Dir(filepath.Dir(l.Dir)))
	}()
	// Read before it is deleted. A cluster without readable state loses whatever context has its name.
	state, stateErr := l.readState()
	previous, _ := os.ReadFile(l.previousContext())
	left, err := process.FindMarked(l.Dir)
	if err != nil {
		return err
	}
	found := exists(l.Dir) || exists(l.failedLogs()) || len(left) > 0
	if found {
		err = cluster.Step(o.Progress, "Stopping and removing "+cluster.ContextName(l.Name), func() (string, error) {
			return "", errors.Join(l.remove(ctx), os.RemoveAll(l.failedLogs()))
		})
		if err != nil {
			return err
		}
	}
	server := ""
	if stateErr == nil {
		server = (&plan{Layout: l, state: state}).serverURL()
	}
	hadContext, err := removeContexts(l.Name, server, string(previous), append(state.Kubeconfigs, o.Kubeconfig))
	if err == nil && !found && !hadContext {
		err = fmt.Errorf("%w: %q: nothing to remove", ErrNotFound, l.Name)
	}
	return err
}

// removeContexts takes the context out of several kubeconfig files; "" is the user's usual one.
func removeContexts(name, server, previous string, files []string) (bool, error) {
	removed := false
	var errs []error
	for _, file := range files {
		had, err := cluster.RemoveKubeconfig(name, file, server, previous)
		removed, errs = removed || had, append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// remove stops all processes of the cluster and deletes its files.
func (l Layout) remove(ctx context.Context) error {
	if err := l.stop(ctx); err != nil {
		return err
	}
	var errs []error
	// A directory for sockets in a shared place that is not ours is not ours to remove.
	if exists(l.RunDir) && ownedAndPrivate(l.RunDir) == nil {
		errs = append(errs, os.RemoveAll(l.RunDir))
		if filepath.Dir(l.RunDir) != l.Dir {
			removeEmpty(filepath.Dir(l.RunDir))
		}
	}
	errs = append(errs, os.RemoveAll(l.Dir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing the cluster's files: %w", err)
	}
	return nil
}

// stop ends all processes of the cluster: through the supervisor, which knows
// the order, and then whatever is left.
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

// failedLogs keeps the logs of an Up that failed and cleaned up after itself.
func (l Layout) failedLogs() string {
	return filepath.Join(filepath.Dir(filepath.Dir(l.Dir)), "failed-logs", l.Name)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// removeEmpty removes directories as long as they are empty.
func removeEmpty(dirs ...string) {
	for _, dir := range dirs {
		if os.Remove(dir) != nil {
			return
		}
	}
}
