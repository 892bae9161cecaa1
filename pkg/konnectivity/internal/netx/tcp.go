// SPDX-License-Identifier: Apache-2.0

package netx

import (
	"math"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Limits for data of a shared connection that waits in the kernel. All of it
// delays the next keystroke, and data that waits long drops out of the CPU
// caches.
const (
	// notSent is the number of written bytes that may wait to be sent.
	notSent = 256 << 10
	// shortPath is the round-trip time up to which the receive window is
	// limited. Above it, the kernel's own tuning finds the size that fits.
	shortPath = 2 * time.Millisecond
	// pathRate is the rate in bytes per second that a short path is taken to
	// carry at most: 20 Gbit/s.
	pathRate = 2_500_000_000
	// minWindow is the receive window in bytes of a path without any delay. It
	// covers for how long the reading process waits for a processor.
	minWindow = 512 << 10
)

// ShortQueues keeps the kernel's queues of a shared TCP connection short. It is
// called once more now and then, when the round-trip time is known better.
func ShortQueues(nc net.Conn) {
	raw := rawOf(nc)
	if raw == nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, notSent)
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil || info.Min_rtt == math.MaxUint32 || info.Min_rtt == 0 {
			return
		}
		window := math.MaxInt32 / 2
		if rtt := time.Duration(info.Min_rtt) * time.Microsecond; rtt <= shortPath {
			window = minWindow + int(rtt.Seconds()*pathRate)
		}
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, window)
	})
}
