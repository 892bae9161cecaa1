// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// startSOCKSProxy runs a SOCKS5 proxy that knows CONNECT to IPv4 addresses and names, and
// counts connections.
func startSOCKSProxy(t *testing.T) (address string, connects *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	connects = &atomic.Int64{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if to := socksConnect(c); to != nil {
					connects.Add(1)
					defer to.Close()
					go func() { _, _ = io.Copy(to, c) }()
					_, _ = io.Copy(c, to)
				}
			}()
		}
	}()
	return l.Addr().String(), connects
}

// socksConnect reads one client's greeting and request (RFC 1928, without a user).
func socksConnect(c net.Conn) net.Conn {
	read := func(n int) []byte { b := make([]byte, n); _, _ = io.ReadFull(c, b); return b }
	read(int(read(2)[1]))
	_, _ = c.Write([]byte{5, 0})
	var host string
	switch head := read(4); head[3] {
	case 1:
		host = netip.AddrFrom4([4]byte(read(4))).String()
	case 3:
		host = string(read(int(read(1)[0])))
	default:
		return nil
	}
	port := read(2)
	to, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(host), uint16(port[0])<<8|uint16(port[1]))))
	if err != nil {
		return nil
	}
	_, _ = c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	return to
}

// Requests and upgrades take a SOCKS5 proxy as they take an HTTP proxy.
func TestSOCKSProxyURL(t *testing.T) {
	api := startAPIServer(t)
	through, connects := startSOCKSProxy(t)
	config := api.config()
	config.Proxy = http.ProxyURL(&url.URL{Scheme: "socks5", Host: through})
	address, _ := serve(t, Options{Config: config}, 0)
	if got := send(t, address, get("/api", "localhost")); got.status != http.StatusOK || connects.Load() != 1 {
		t.Fatalf("status %d, %d connections through the proxy: %s", got.status, connects.Load(), got.body)
	}
	c, r := dial(t, address, upgrade("/api/v1/namespaces/n/pods/p/exec"))
	if switched(t, r); connects.Load() != 2 {
		t.Fatalf("%d connections through the proxy, want 2", connects.Load())
	}
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if _, err := io.CopyN(&got, r, 5); err != nil || got.String() != "hello" {
		t.Errorf("the connection returned %q, %v", got.String(), err)
	}
}
