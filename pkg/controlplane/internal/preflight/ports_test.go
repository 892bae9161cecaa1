// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"net"
	"strings"
	"sync"
	"testing"
)

// TestTryPort: a port on which another process goes on listening is taken. Checks of one port at a time do not find each other.
func TestTryPort(t *testing.T) {
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	port := int32(listener.Addr().(*net.TCPAddr).Port)
	if err := tryPort(t.Context(), port); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a port in use: %v", err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				if err := tryPort(t.Context(), port); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}
