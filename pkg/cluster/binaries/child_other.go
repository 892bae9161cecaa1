// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package binaries

import "syscall"

// diesWithParent does nothing: only Linux can do that.
func diesWithParent() *syscall.SysProcAttr { return nil }
