// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
)

// Errors that callers may want to distinguish. All of them leave the control
// plane as it was.
var (
	// ErrPreflight is returned if the state of the node does not allow the
	// change. Nothing was changed.
	ErrPreflight = errors.New("nothing was changed")
	// ErrRolledBack is returned if a change failed and was rolled back.
	ErrRolledBack = errors.New("everything was put back")
	// ErrBusy is returned while another run is active on this node.
	ErrBusy = journal.ErrBusy
	// ErrManifest is returned for a manifest that cannot be read or edited.
	ErrManifest = manifests.ErrManifest
	// ErrNotInstalled is returned by Uninstall if nothing is installed.
	ErrNotInstalled = errors.New("the tunnel is not installed on this node")
)

// explain adds advice to errors of the operating system.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: free some space on that file system, then run the command again", err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: mount it writable, then run the command again", err)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%w: permission denied even for root: look for an immutable file or directory (\"lsattr -d\" shows an i, "+
			"\"chattr -i\" clears it), SELinux or AppArmor (\"ausearch -m avc -ts recent\"), or a network file system that maps root to another user (root_squash), "+
			"then run the command again", err)
	}
	return err
}
