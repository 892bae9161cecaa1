// SPDX-License-Identifier: Apache-2.0

package netx

import (
	"net"

	"golang.org/x/sys/unix"
)

// Delivery is how far a TCP connection has got with what was written to it, in bytes.
type Delivery struct {
	Acked   uint64 // what the peer's kernel has
	Waiting uint64 // what it does not have yet
	Unsent  uint64 // what of that was not sent yet
}

// DeliveryOf asks the kernel. It is false where that does not know.
func DeliveryOf(nc net.Conn) (d Delivery, ok bool) {
	raw := rawOf(nc)
	if raw == nil {
		return d, false
	}
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		waiting, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		if err != nil {
			return
		}
		d, ok = Delivery{info.Bytes_acked, uint64(waiting), uint64(info.Notsent_bytes)}, true
	})
	return d, ok
}
