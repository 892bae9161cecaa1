// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
)

// ErrStillInstalled is returned by Uninstall when it has rolled back an interrupted
// run that followed an installation: that installation is in place, as it was.
var ErrStillInstalled = errors.New("an interrupted run was put back, and the installation from before it is in place: " +
	"run \"fairlead controlplane uninstall\" again to take that away, too")
