// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// abandon undoes a failed create and adds to its error what the user needs to know.
func (p *plan) abandon(ctx context.Context, retain bool, cause error) error {
	if ctx.Err() != nil {
		cause = cluster.ErrInterrupted
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	if retain {
		return fmt.Errorf("%w\nkept for inspection: %s (logs in %s); remove it with \"fairlead down --name %s\"", cause, p.Dir, p.LogDir(), p.Name)
	}
	logs, err := p.SaveLogs()
	// Remove everything else even if the logs could not be saved.
	if err = errors.Join(err, p.remove(ctx), os.Remove(p.LockFile())); err != nil {
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
		cause = cluster.ErrInterrupted
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	if err := p.stop(ctx); err != nil {
		return fmt.Errorf("%w\nstopping it again failed too: %w", cause, err)
	}
	return fmt.Errorf("%w\nthe cluster is stopped as before; its logs are in %s", cause, p.LogDir())
}
