// SPDX-License-Identifier: Apache-2.0

package main

import "syscall"

// diesWithParent has the kernel kill the test binary when this program is killed.
func diesWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
