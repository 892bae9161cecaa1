// SPDX-License-Identifier: Apache-2.0

package netx

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Peer names who is at the other end of a connection: its address or, as a Unix
// socket has none, its process and user. A process of another container has the
// number 0.
func Peer(nc net.Conn) string {
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		return Peer(t.NetConn())
	}
	if _, local := nc.(*net.UnixConn); !local {
		return nc.RemoteAddr().String()
	}
	var cred *unix.Ucred
	err := net.ErrClosed
	if raw := rawOf(nc); raw != nil {
		if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
			err = e
		}
	}
	if err != nil {
		return "a Unix socket"
	}
	return fmt.Sprintf("a Unix socket, process %d of user %d", cred.Pid, cred.Uid)
}
