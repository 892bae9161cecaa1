// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/offline/debian"
)

// install makes sure that dockerd and the docker command are there: on Debian by apt, elsewhere it says what to do.
// Newer releases have the command in a package of its own.
func (o Options) install(ctx context.Context) error {
	err := debian.Install(ctx, []string{"dockerd", "docker"}, []string{"docker.io", "iptables", "docker-cli?"}, func(text string) { o.logf("%s", text) })
	if errors.Is(err, debian.ErrInstall) {
		return fmt.Errorf("%w: install Docker, or set DOCKER_HOST to a daemon that runs: %w", ErrNotInstalled, err)
	}
	return err
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

// diagnosis returns the last log lines of dockerd, and the remedy if it is known.
func (o Options) diagnosis() string {
	data, _ := os.ReadFile(o.path("dockerd.log"))
	tail := debian.LastLines(string(data), 3)
	text := "see " + o.path("dockerd.log")
	for _, r := range remedies {
		if strings.Contains(strings.ToLower(tail), r.symptom) {
			text = r.remedy + " (" + text + ")"
			break
		}
	}
	return text + ":\n" + tail
}
