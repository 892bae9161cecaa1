// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestLateReader: a client that is too busy to read the answer to its CONNECT does
// not find the destination's first bytes behind it, for which kube-apiserver would
// give the connection up.
func TestLateReader(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{})
	r.StartAgent(agent.Config{}, "")
	const hello = "220 ready\r\n"
	addr := Target(t, func(c net.Conn) { _, _ = c.Write([]byte(hello)); _, _ = io.Copy(io.Discard, c) })
	c, err := net.Dial("unix", r.Connect)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", addr)
	time.Sleep(300 * time.Millisecond)
	_ = c.SetReadDeadline(time.Now().Add(Patience))
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if head := string(b[:n]); err != nil || !strings.HasPrefix(head, "HTTP/1.1 200") || !strings.HasSuffix(head, "\r\n\r\n") {
		t.Errorf("got %q, %v, want an answer with status 200 and nothing behind it", head, err)
	}
	if _, err := io.ReadFull(c, b[:len(hello)]); err != nil || string(b[:len(hello)]) != hello {
		t.Errorf("got %q, %v, want %q", b[:len(hello)], err, hello)
	}
}
