package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// install makes sure that dockerd and the docker command are there: on Debian by apt, elsewhere it says what to do.
func (o Options) install(ctx context.Context) error {
	if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin"); err != nil { // su without a dash leaves them out
		return err
	}
	_, daemonErr := exec.LookPath("dockerd")
	_, clientErr := exec.LookPath("docker")
	if daemonErr == nil && clientErr == nil {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%w, and this is not Debian, where it would be installed by apt: install Docker, or set DOCKER_HOST to a daemon that runs", ErrNotInstalled)
	}
	o.logf("Installing Docker from Debian's packages ...")
	if err := apt(ctx, "update", "--quiet"); err != nil {
		return err
	}
	// Newer releases have the command in a package of its own.
	packages := []string{"docker.io", "iptables"}
	if exec.CommandContext(ctx, "apt-cache", "show", "--no-all-versions", "docker-cli").Run() == nil {
		packages = append(packages, "docker-cli")
	}
	if err := apt(ctx, append([]string{"install", "--quiet", "--yes", "--no-install-recommends"}, packages...)...); err != nil {
		return err
	}
	for _, name := range []string{"dockerd", "docker"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%w: %s brought no %s", ErrNotInstalled, strings.Join(packages, " "), name)
		}
	}
	return nil
}

// apt runs apt-get. In run level 1 packages do not start their services: the daemon is to be ours alone.
func apt(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // dpkg ends in order
	cmd.WaitDelay = 30 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: apt-get %s: %w: check the network and /etc/apt/sources.list:\n%s",
			ErrNotInstalled, args[0], err, lastLines(string(out), 5))
	}
	return nil
}

// lock makes starts and stops in one directory wait for each other.
func (o Options) lock(ctx context.Context) (func(), error) {
	f, err := os.OpenFile(o.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the daemon's directory: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// remedies for what dockerd says when it cannot start.
var remedies = []struct{ symptom, remedy string }{
	{"no space left on device", "the disk is full: make room, or choose a -dir on another disk"},
	{"cgroup", "the machine's control groups are not usable: mount them below /sys/fs/cgroup"},
	{"iptables", "iptables does not work here: install it and allow CAP_NET_ADMIN"},
	{"address already in use", "the socket is taken: stop what uses it, or choose another -dir"},
	{"operation not permitted", "the sandbox forbids it: run with more privileges"},
	{"read-only file system", "choose a -dir that can be written to"},
}

// diagnosis is the last that dockerd has logged, and what to do about it where that is known.
func (o Options) diagnosis() string {
	data, _ := os.ReadFile(o.path("dockerd.log"))
	tail := lastLines(string(data), 3)
	text := "see " + o.path("dockerd.log")
	for _, r := range remedies {
		if strings.Contains(strings.ToLower(tail), r.symptom) {
			text = r.remedy + " (" + text + ")"
			break
		}
	}
	return text + ":\n" + tail
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
