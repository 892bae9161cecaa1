// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestLargeFrames: the proxy takes frames of HTTP/2 from the API server that are larger than those of the default,
// so that a large body takes fewer of them.
func TestLargeFrames(t *testing.T) {
	api := startAPIServer(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: api.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	size := make(chan uint32, 1)
	go func() {
		defer close(size)
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(bound))
		if _, err := io.ReadFull(nc, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		f, err := http2.NewFramer(nc, nc).ReadFrame()
		if settings, ok := f.(*http2.SettingsFrame); ok && err == nil {
			v, _ := settings.Value(http2.SettingMaxFrameSize)
			size <- v
		}
	}()
	config := api.config()
	config.Host = "https://" + l.Addr().String()
	address, _ := serve(t, Options{Config: config, Filter: defaults(t)}, 0)
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_, _ = io.WriteString(nc, get("/api", "localhost"))
	if got := <-size; got != frameSize {
		t.Errorf("frames of %d bytes are taken, want %d", got, frameSize)
	}
}
