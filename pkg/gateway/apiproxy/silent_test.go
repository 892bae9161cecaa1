// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// TestThousandSilentClients: a thousand clients that say nothing, or stop in the middle of a request's head, are closed
// within 10 seconds, while others are served; goroutines and memory return.
func TestThousandSilentClients(t *testing.T) {
	const clients = 1000
	const silence = 10 * time.Second
	const late = 20 * time.Second // what a busy machine adds
	api := startAPIServer(t)
	address, _ := serve(t, Options{Config: api.config(), Filter: defaults(t), Token: "secret"}, 0)
	served := func() {
		t.Helper()
		if got := send(t, address, get("/api", "localhost", "Authorization: Bearer secret")); got.status != http.StatusOK {
			t.Errorf("status %d: %s", got.status, got.body)
		}
	}
	served() // what the first request makes is kept
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()
	filler := "X: " + strings.Repeat("x", 16<<10)
	silent, start := make([]net.Conn, clients), time.Now()
	for i := range silent {
		nc, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		silent[i] = nc
		_, _ = io.WriteString(nc, []string{"", "G", "GET /api HTTP/1.1\r\n", "GET /api HTTP/1.1\r\nHost: localhost\r\n" + filler}[i%4])
	}
	served()
	for _, nc := range silent {
		_ = nc.SetReadDeadline(start.Add(silence + late))
		if _, err := io.Copy(io.Discard, nc); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("a silent client is still connected: %v", err)
		}
		_ = nc.Close()
	}
	served()
	clear(silent)
	testutil.Eventually(t, time.Minute, func() error { // closed connections take more than one collection
		runtime.GC()
		runtime.ReadMemStats(&after)
		n := runtime.NumGoroutine()
		if n > goroutines+10 || after.HeapAlloc > before.HeapAlloc+2<<20 { // one buffer each would be 4 MiB
			return fmt.Errorf("%d goroutines and %d bytes of heap, %d and %d before", n, after.HeapAlloc, goroutines, before.HeapAlloc)
		}
		return nil
	})
}
