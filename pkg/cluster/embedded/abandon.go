package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrInterrupted says that the context of Up ended before it had.
var ErrInterrupted = errors.New("interrupted")

// abandon undoes a failed create and adds to its error what the user needs to know.
func (p *plan) abandon(ctx context.Context, retain bool, cause error) error {
	if ctx.Err() != nil {
		cause = ErrInterrupted
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	if retain {
		return fmt.Errorf("%w\nkept for inspection: %s (logs in %s); remove it with \"fairlead down --name %s\"", cause, p.Dir, p.LogDir(), p.Name)
	}
	logs, err := p.saveLogs()
	// Without a place for the logs the rest has to go all the same.
	if err = errors.Join(err, p.remove(ctx), os.Remove(p.lockFile())); err != nil {
		return fmt.Errorf("%w\ncleaning up failed too: %w: run \"fairlead down --name %s\"", cause, err, p.Name)
	}
	if logs == "" {
		return cause
	}
	return fmt.Errorf("%w\nremoved what was made; its logs are in %s", cause, logs)
}

// stopAfter stops a cluster that could not be started again.
func (p *plan) stopAfter(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		cause = ErrInterrupted
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	if err := p.stop(ctx); err != nil {
		return fmt.Errorf("%w\nstopping it again failed too: %w", cause, err)
	}
	return fmt.Errorf("%w\nthe cluster is stopped as before; its logs are in %s", cause, p.LogDir())
}

// saveLogs moves the logs of a failed create out of the directory that goes
// away. It returns "" when nothing was logged.
func (p *plan) saveLogs() (string, error) {
	entries, err := os.ReadDir(p.LogDir())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("keeping the logs: %w", err)
	}
	if len(entries) == 0 {
		return "", nil
	}
	target := p.failedLogs()
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return "", fmt.Errorf("keeping the logs: %w", err)
	}
	if err := os.RemoveAll(target); err != nil {
		return "", fmt.Errorf("replacing older logs: %w", err)
	}
	if err := os.Rename(p.LogDir(), target); err != nil {
		return "", fmt.Errorf("keeping the logs: %w", err)
	}
	return target, nil
}
