// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
)

// failingFinder finds servers, and fails as well.
type failingFinder struct {
	finder
	err error
}

func (f *failingFinder) Find(ctx context.Context) (map[string]Asker, error) {
	out, _ := f.finder.Find(ctx)
	return out, f.err
}

// TestSameFailureOfNewConnections: a failure is logged and written once although each try has a connection from another port.
func TestSameFailureOfNewConnections(t *testing.T) {
	s, port := &fake{}, 40000
	look := &failingFinder{finder: finder{"1": s}}
	var lines []string
	objects, now := &sink{objects: map[string]runtime.Object{}}, time.Now()
	c := New(Config{Finder: look, Agents: &sink{objects: map[string]runtime.Object{}}, Servers: objects, Now: func() time.Time { return now },
		Logger: logtest.New(func(_ int, text string) { lines = append(lines, text) })})
	for range 30 {
		port++
		reset := &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: port}, Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 8093}, Err: syscall.ECONNRESET}
		s.err = &url.Error{Op: "Get", URL: "https://k:8093", Err: reset}
		look.err = fmt.Errorf("look up the servers: %w", &net.DNSError{Err: fmt.Sprintf("read udp 10.0.0.1:%d->10.96.0.10:53: i/o timeout", port), Name: "k", Server: "10.96.0.10:53"})
		c.Round(t.Context())
		now = now.Add(time.Second)
	}
	if len(lines) != 2 || !strings.Contains(strings.Join(lines, "\n"), "read tcp 10.0.0.2:8093: connection reset by peer") {
		t.Errorf("%d lines, want 2:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	if objects.writes != 1 {
		t.Errorf("the server was written %d times, want once", objects.writes)
	}
}
