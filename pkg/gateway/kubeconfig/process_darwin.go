// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// startOf returns when a process has started, as far as the system tells.
func startOf(pid int) string {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return ""
	}
	const zombie = 5 // SZOMB of sys/proc.h
	if info.Proc.P_stat == zombie {
		return "ended"
	}
	return fmt.Sprintf("%d.%06d", info.Proc.P_starttime.Sec, info.Proc.P_starttime.Usec)
}

// boot returns the identity of the machine since its start.
func boot() string {
	id, _ := unix.Sysctl("kern.bootsessionuuid")
	return id
}
