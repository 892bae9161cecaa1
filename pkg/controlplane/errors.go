package controlplane

import (
	"errors"
	"fmt"
	"syscall"
)

// What callers may want to tell apart. All of them leave the control plane as it
// was.
var (
	// ErrPreflight is returned when something about the node does not allow the
	// change. Nothing was changed.
	ErrPreflight = errors.New("nothing was changed")
	// ErrRolledBack is returned when a change failed and everything was put back.
	ErrRolledBack = errors.New("everything was put back")
	// ErrBusy is returned while another run is at work on this node.
	ErrBusy = errors.New("another fairlead controlplane is at work on this node: try again when it has ended")
	// ErrNotInstalled is returned by Uninstall where there is nothing to take away.
	ErrNotInstalled = errors.New("the tunnel is not installed on this node")

	errForeign = errors.New("not written by fairlead")
)

// explain adds what to do to errors that come from the system.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: free some space on that file system, then run the command again", err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: mount it writable, then run the command again", err)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%w: root may not do that there, so something else forbids it: an immutable file or directory (\"lsattr -d\" shows an i, "+
			"\"chattr -i\" takes it away), SELinux or AppArmor (\"ausearch -m avc -ts recent\"), or a network file system that trusts no root; "+
			"change that, then run the command again", err)
	}
	return err
}
