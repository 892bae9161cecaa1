// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// frozenClient opens a stream of the gRPC service on a server's socket and answers nothing
// from then on.
func frozenClient(t *testing.T, socket string) (net.Conn, *http2.Framer) {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	framer := http2.NewFramer(conn, conn)
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/ProxyService/Proxy"}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	_, err = conn.Write([]byte(http2.ClientPreface))
	err = errors.Join(err, framer.WriteSettings(), framer.WriteSettingsAck(),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}))
	if err != nil {
		t.Fatal(err)
	}
	return conn, framer
}

// nextPing reads until a ping comes. The error is that of the connection.
func nextPing(framer *http2.Framer) error {
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		if ping, ok := f.(*http2.PingFrame); ok && !ping.IsAck() {
			return nil
		}
	}
}

// TestFrontendKeepaliveTime checks that the server pings a frozen client once it has been
// silent for --frontend-keepalive-time and cuts it off when it has not answered for 20 s,
// with Fairlead's server as with upstream's. Neither happens without the flag, whose
// default is an hour.
func TestFrontendKeepaliveTime(t *testing.T) {
	testutil.Full(t, "waits for the 20 s that a client has to answer")
	for name, c := range map[string]struct {
		server    release
		keepalive time.Duration
	}{
		"ours": {ours, 2 * time.Second}, "upstream": {v0_36_0, 2 * time.Second}, "ours, default": {ours, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			o := options{mode: "grpc", server: c.server, agent: c.server}
			if c.keepalive > 0 {
				o.serverFlags = []string{"--frontend-keepalive-time=" + c.keepalive.String()}
			}
			p := startPair(t, o)
			watchFrozen(t, p.socket, c.keepalive)
		})
	}
}

// watchFrozen checks what a frozen client sees of a server, with no keepalive time nothing.
func watchFrozen(t *testing.T, socket string, keepalive time.Duration) {
	t.Helper()
	const answer, slack = 20 * time.Second, 8 * time.Second // the latter for a busy machine
	conn, framer := frozenClient(t, socket)
	start := time.Now()
	_ = conn.SetReadDeadline(start.Add(keepalive + slack))
	err := nextPing(framer)
	pinged := time.Since(start)
	if keepalive == 0 {
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after %v: %v", pinged, err)
		}
		return
	}
	if err != nil || pinged < keepalive*3/4 {
		t.Fatalf("pinged after %v: %v", pinged, err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(answer + slack))
	for err == nil {
		err = nextPing(framer)
	}
	took := time.Since(start) - pinged
	t.Logf("pinged after %v, cut off after %v more: %v", pinged, took, err)
	if errors.Is(err, os.ErrDeadlineExceeded) || took < answer*3/4 {
		t.Errorf("cut off after %v: %v", took, err)
	}
}
