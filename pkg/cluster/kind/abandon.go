// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	kindcluster "sigs.k8s.io/kind/pkg/cluster"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/fsutil"
)

// interrupted reports an interrupt instead of the failure that it caused.
func interrupted(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		return cluster.ErrInterrupted
	}
	return cause
}

// abandon undoes a failed create and adds to its error what the user needs to
// know. It takes as long as the container runtime needs to remove containers.
func (p *plan) abandon(ctx context.Context, library *kindcluster.Provider, log *logger, retain bool, cause error) error {
	stopped := ctx.Err() != nil
	cause = interrupted(ctx, cause)
	remove := fmt.Sprintf("\"fairlead down --name %s\"", p.Name)
	if retain {
		logErr := p.keepLogs(library, log, !stopped)
		return errors.Join(fmt.Errorf("%w\nkept for inspection: %s and its containers (logs in %s); remove it with %s", cause, p.Dir, p.LogDir(), remove), logErr)
	}
	var logs string
	var err error
	if !stopped {
		_ = p.keepLogs(library, log, true) // the cause is more important
		if hint := outOfInotify(p.LogDir()); hint != "" {
			cause = fmt.Errorf("%w\n%s", cause, hint)
		}
		logs, err = p.SaveLogs()
	}
	if err = errors.Join(err, p.remove(ctx, library), os.Remove(p.LockFile())); err != nil {
		return fmt.Errorf("%w\ncleaning up failed too: %w: run %s", cause, err, remove)
	}
	if logs == "" {
		return cause
	}
	return fmt.Errorf("%w\nremoved what was made; logs of kind and of the nodes are in %s", cause, logs)
}

// logLimit bounds the collection of logs; kind's library takes no context.
const logLimit = 30 * time.Second

// keepLogs writes kind's log and, if nodes is true, also the nodes' logs.
func (p *plan) keepLogs(library *kindcluster.Provider, log *logger, nodes bool) error {
	if err := os.MkdirAll(p.LogDir(), 0o700); err != nil {
		return err
	}
	if text := log.text(); text != "" {
		if err := fsutil.WriteFile(filepath.Join(p.LogDir(), "kind.log"), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if !nodes {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = library.CollectLogs(kindName(p.Name), p.LogDir())
	}()
	select {
	case <-done:
		return nil // best effort: nodes that never started, and small images, do not have all requested logs
	case <-time.After(logLimit):
		return fmt.Errorf("the nodes' logs were not to be had within %v", logLimit)
	}
}

// inotifyLimit is a limit of the machine that all containers share. If it has
// its old default of 128, systemd in a few nodes exhausts it.
const inotifyLimit = "/proc/sys/fs/inotify/max_user_instances"

// outOfInotify detects from the nodes' logs that the nodes did not start for
// lack of inotify instances, and says what to do. kind only reports that the
// nodes are gone.
func outOfInotify(logs string) string {
	files, _ := filepath.Glob(filepath.Join(logs, "*", "serial.log"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(data, []byte("inotify")) || !bytes.Contains(data, []byte("Too many open files")) {
			continue
		}
		limit, _ := os.ReadFile(inotifyLimit)
		return fmt.Sprintf("%s could not start: the inotify instances of this machine are used up (fs.inotify.max_user_instances = %s): raise the limit with \"sudo sysctl fs.inotify.max_user_instances=1024\", or remove other clusters",
			filepath.Base(filepath.Dir(file)), bytes.TrimSpace(limit))
	}
	return ""
}
