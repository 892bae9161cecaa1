// SPDX-License-Identifier: Apache-2.0

package gone

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// isGone reports whether nothing has come from a peer for a time, although the kernel has sent it bytes again, or has asked it
// several times whether it takes more. A peer that reads slowly answers both; TCP_USER_TIMEOUT would end it as well.
func isGone(c *net.TCPConn, after time.Duration) (gone bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		since := func(ms uint32) time.Duration { return time.Duration(ms) * time.Millisecond }
		heard, sent := min(since(info.Last_ack_recv), since(info.Last_data_recv)), since(info.Last_data_sent)
		// What was sent last has had time to be acknowledged.
		sentAgain := info.Retransmits > 0 && info.Unacked > 0 && sent < heard && sent >= after/12
		const probes = 3 // as for keepalive; one more may be on its way
		gone = heard >= after && (sentAgain || info.Probes > probes)
	})
	return gone
}
