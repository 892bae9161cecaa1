// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Listener returns the program that listens on a TCP port, such as "nginx
// (process 123)", or "" if that cannot be determined.
func (f Procfs) Listener(port int32) string {
	inodes := listeningInodes(port)
	if len(inodes) == 0 {
		return ""
	}
	found := ""
	f.each(func(pid int, argv []string) {
		if found != "" {
			return
		}
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			target, err := os.Readlink(fd)
			if err == nil && inodes[target] {
				found = fmt.Sprintf("%s (process %d)", filepath.Base(argv[0]), pid)
				return
			}
		}
	})
	return found
}

// listeningInodes returns the sockets that listen on the port, in the notation of
// /proc/PID/fd.
func listeningInodes(port int32) map[string]bool {
	const stateListen, stateColumn, inodeColumn = "0A", 3, 9
	inodes := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.SplitSeq(string(data), "\n") {
			fields := strings.Fields(line)
			if len(fields) <= inodeColumn || fields[stateColumn] != stateListen {
				continue
			}
			_, hex, _ := strings.Cut(fields[1], ":")
			if n, err := strconv.ParseInt(hex, 16, 32); err == nil && int32(n) == port {
				inodes["socket:["+fields[inodeColumn]+"]"] = true
			}
		}
	}
	return inodes
}
