// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// startOf returns when a process has started, as far as the system tells.
func startOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name of the program may have blanks and brackets.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const start = 19 // field 22 of proc(5), after the two before it
	if len(fields) <= start || fields[0] == "Z" {
		return "ended"
	}
	return fields[start]
}

// boot returns the identity of the machine since its start.
func boot() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}
