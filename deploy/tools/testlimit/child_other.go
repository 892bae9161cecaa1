// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import "syscall"

func diesWithParent() *syscall.SysProcAttr { return nil }
