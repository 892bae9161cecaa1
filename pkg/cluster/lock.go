// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead-dev/fairlead/pkg/internal/lockfile"
)

// ErrBusy is returned while another command works on the same cluster.
var ErrBusy = lockfile.ErrBusy

// writableState is the hint if the state directory is not writable.
const writableState = "set XDG_STATE_HOME to a directory that you may write to"

// Lock takes the cluster's lock for one command. The kernel releases it when the
// process ends, however it ends.
func (h Home) Lock() (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(h.LockFile()), 0o700); err != nil {
		return nil, fmt.Errorf("creating the state directory: %w: %s", err, writableState)
	}
	unlock, err = lockfile.Lock(h.LockFile())
	switch {
	case errors.Is(err, ErrBusy):
		return nil, fmt.Errorf("%w: cluster %q: wait for it to end, or choose another --name", ErrBusy, h.Name)
	case err != nil:
		return nil, fmt.Errorf("locking cluster %q: %w: %s", h.Name, err, writableState)
	}
	return unlock, nil
}
