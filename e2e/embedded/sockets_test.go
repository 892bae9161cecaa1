// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// listener is a listening TCP socket of this machine.
type listener struct {
	ip    net.IP
	inode string
}

// listeners reads /proc/net/tcp and tcp6.
func listeners(t *testing.T) []listener {
	t.Helper()
	var list []listener
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // no IPv6
		}
		for _, line := range strings.Split(string(data), "\n")[1:] {
			fields := strings.Fields(line)
			if len(fields) < 10 || fields[3] != "0A" {
				continue
			}
			address, _, _ := strings.Cut(fields[1], ":")
			list = append(list, listener{ip: parseKernelIP(t, address), inode: fields[9]})
		}
	}
	return list
}

// parseKernelIP reads an address as the kernel prints it: words of four bytes in host order.
func parseKernelIP(t *testing.T, text string) net.IP {
	t.Helper()
	ip, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	for word := range slices.Chunk(ip, 4) {
		slices.Reverse(word)
	}
	return ip
}

// socketsOf lists the inodes of a process's sockets.
func socketsOf(t *testing.T, pid int) map[string]bool {
	t.Helper()
	links, err := filepath.Glob(filepath.Join("/proc", pidText(pid), "fd", "*"))
	if err != nil {
		t.Fatal(err)
	}
	inodes := map[string]bool{}
	for _, link := range links {
		target, _ := os.Readlink(link)
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes
}
