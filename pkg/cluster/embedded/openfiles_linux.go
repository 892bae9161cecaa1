// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"math"

	"golang.org/x/sys/unix"
)

// keepOpenFiles keeps programs that outlive this process from inheriting the
// files it was started with. Otherwise, until the cluster is removed, the lock
// of "flock FILE fairlead up" would be held and a script's pipe kept open. A
// kernel without this feature (before 5.11) leaves the files open.
func keepOpenFiles() { _ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) }
