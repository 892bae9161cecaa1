// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/offline/debian"
)

// stopTime is how long the daemon may take to end its containers and itself.
const stopTime = time.Minute

// Stop ends the daemon in o.Dir with all its containers. Images and stopped containers stay for the next start;
// purge removes them too, with the networks and the directory. It is no error to stop a daemon that does not run.
func Stop(ctx context.Context, o Options, purge bool) error {
	o, err := o.complete()
	if err != nil {
		return err
	}
	if _, err := os.Stat(o.Dir); os.IsNotExist(err) {
		o.logf("No Docker daemon in %s.", o.Dir)
		return nil
	}
	unlock, err := o.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := ping(ctx, o.host()); err == nil && purge {
		if err := o.empty(ctx); err != nil {
			o.logf("Not everything could be removed: %v", err)
		}
	}
	if pid := o.pid(); pid != 0 {
		if err := o.kill(ctx, pid); err != nil {
			return err
		}
		o.logf("Stopped the Docker daemon in %s.", o.Dir)
	}
	if err := debian.UnmountBelow(o.Dir); err != nil || !purge {
		return err
	}
	return os.RemoveAll(o.Dir)
}

// empty removes containers and networks while the daemon can still do it. Once the daemon is gone, no program knows
// which bridges belong to them.
func (o Options) empty(ctx context.Context) error {
	containers, err := o.docker(ctx, "ps", "--all", "--quiet")
	if err != nil {
		return err
	}
	var errs []error
	if len(containers) > 0 {
		_, err := o.docker(ctx, append([]string{"rm", "--force", "--volumes"}, containers...)...)
		errs = append(errs, err)
	}
	_, err = o.docker(ctx, "network", "prune", "--force")
	return errors.Join(append(errs, err)...)
}

// docker runs the docker command on this daemon and returns the words of its output.
func (o Options) docker(ctx context.Context, args ...string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Env = environ("DOCKER_HOST", o.host())
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return strings.Fields(string(out)), nil
}

// pid of our dockerd, 0 if it does not run. The pidfile may be from before a reboot, so the process must also be
// our dockerd.
func (o Options) pid() int {
	data, err := os.ReadFile(o.path("docker.pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || !o.owns(pid, "dockerd") {
		return 0
	}
	return pid
}

// owns reports whether a process runs the named program with a path of ours among its arguments.
func (o Options) owns(pid int, program string) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	args := strings.Split(string(cmdline), "\x00")
	return strings.HasPrefix(filepath.Base(args[0]), program) &&
		slices.ContainsFunc(args[1:], func(a string) bool { return strings.HasPrefix(a, o.Dir+"/") || a == o.host() })
}

// kill asks dockerd to end, which ends its containers and its containerd, and ends what is left by force.
func (o Options) kill(ctx context.Context, pid int) error {
	if !o.owns(pid, "dockerd") {
		return o.killRest()
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stopping dockerd (process %d): %w", pid, err)
	}
	deadline := time.Now().Add(stopTime)
	for o.owns(pid, "dockerd") && time.Now().Before(deadline) && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
	}
	if o.owns(pid, "dockerd") {
		o.logf("dockerd (process %d) did not end within %v and is killed.", pid, stopTime)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return o.killRest()
}

// killRest ends our containerd and the shims, which end their containers with them.
func (o Options) killRest() error {
	for _, program := range []string{"containerd-shim", "containerd"} {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if pid, err := strconv.Atoi(entry.Name()); err == nil && o.owns(pid, program) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	return nil
}
