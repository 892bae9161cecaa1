// SPDX-License-Identifier: Apache-2.0

package daemontest

import (
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// Ports returns n different TCP ports of 127.0.0.1 on which no process listens. They lie below the range from which
// the kernel picks ports for outgoing connections, so that none is taken before its program has started, and within
// what konnectivity's options accept.
func Ports(tb testing.TB, n int) []string {
	tb.Helper()
	const low, high, attempts = 15000, 32000, 1000
	ports := make([]string, 0, n)
	for i := 0; i < attempts && len(ports) < n; i++ {
		port := strconv.Itoa(low + rand.IntN(high-low))
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			continue
		}
		defer listener.Close() // at the end, so that no port comes twice
		ports = append(ports, port)
	}
	if len(ports) < n {
		tb.Fatalf("found only %d free ports", len(ports))
	}
	return ports
}

// SocketPath returns the path of a Unix socket that does not exist yet, in a directory of its own whose path is short:
// the limit is 107 bytes, and that of tb.TempDir can be longer.
func SocketPath(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "fl") //nolint:usetesting // TempDir's path is too long
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return filepath.Join(dir, "s.sock")
}
