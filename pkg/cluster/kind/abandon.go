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

// interrupted says so instead of what an interrupt made fail.
func interrupted(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		return cluster.ErrInterrupted
	}
	return cause
}

// abandon undoes a failed create and adds to its error what the user needs to
// know. It is bounded by what the container runtime takes to remove containers.
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

// logLimit bounds the collecting of logs; kind takes no context.
const logLimit = 30 * time.Second

// keepLogs writes what kind said, and with nodes also their logs.
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
		return nil // best effort: nodes that never came up, and small images, do not have all that is asked for
	case <-time.After(logLimit):
		return fmt.Errorf("the nodes' logs were not to be had within %v", logLimit)
	}
}

// inotifyLimit is a limit of the machine that all containers share, and that
// systemd in a few nodes uses up where it has its old default of 128.
const inotifyLimit = "/proc/sys/fs/inotify/max_user_instances"

// outOfInotify recognises in the nodes' logs that they did not start for want of
// inotify instances, and says what to do; kind only sees that they are gone.
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
