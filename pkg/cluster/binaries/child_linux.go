// SPDX-License-Identifier: Apache-2.0

package binaries

import "syscall"

// diesWithParent lets the kernel end the compiler if fairlead is killed.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
