// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestKeepalive: the sockets of connections to the API server have the time before keep-alive probes
// that was asked for, those of requests and of upgrades.
// It observes HTTP-07 of docs/requirements.md.
func TestKeepalive(t *testing.T) {
	for period, want := range map[time.Duration]int{0: 30, 42 * time.Second: 42, -1: 0} {
		api := startAPIServer(t)
		address, stop := serve(t, Options{Config: api.config(), Filter: filter(t, DefaultAcceptHosts, ".*", "", ""), Keepalive: period}, 0)
		if got := send(t, address, get("/api", "localhost")); got.status != http.StatusOK {
			t.Fatalf("status %d: %s", got.status, got.body)
		}
		c, r := dial(t, address, upgrade("/pods/p/exec"))
		switched(t, r)
		got := keepalives(t, api.Listener.Addr().String())
		if len(got) != 2 || got[0] != want || got[1] != want {
			t.Errorf("--keepalive %v: the sockets probe after %v s, want two with %d", period, got, want)
		}
		_ = c.Close()
		_ = stop()
	}
}

// keepalives returns the periods of this process's sockets that are connected to an address, 0
// for sockets that do not probe.
func keepalives(t *testing.T, address string) (periods []int) {
	t.Helper()
	peer := netip.MustParseAddrPort(address)
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		fd, err := strconv.Atoi(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		sa, err := unix.Getpeername(fd)
		in, ok := sa.(*unix.SockaddrInet4)
		if err != nil || !ok || netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port)) != peer { //nolint:gosec // a port
			continue
		}
		on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		if err != nil {
			t.Fatal(err)
		}
		period := 0
		if on != 0 {
			if period, err = unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE); err != nil {
				t.Fatal(err)
			}
		}
		periods = append(periods, period)
	}
	return periods
}
