// SPDX-License-Identifier: Apache-2.0

// Package httplimits bounds what the connections of an HTTP listener take of a process:
// memory, descriptors and time. Listeners for probes, metrics and the like are next to
// work that is worth more, and who reaches one need not prove who it is.
//
// A listener that is full makes room for the next connection, which may be a probe of
// the kubelet: it closes the one that has waited longest without a request. See place.
package httplimits

import (
	"net"
	"net/http"
	"syscall"
	"time"
)

// Limits are bounds of one listener. A timeout of 0 does not exist.
type Limits struct {
	ReadHeader, Read, Write, Idle time.Duration
	HeaderBytes                   int
	// Conns is the number of connections that are served at a time. A process with few
	// descriptors needs them for its work, so the listener takes an eighth of them at most.
	Conns int
}

// Short is for listeners whose requests are small and whose answers are quick.
var Short = Limits{
	ReadHeader: 5 * time.Second, Read: 10 * time.Second, Write: 30 * time.Second, Idle: 30 * time.Second,
	HeaderBytes: 16 << 10, Conns: 100,
}

// Long is for listeners whose answers take as long as they take: logs that are followed,
// programs that are stopped.
var Long = Limits{ReadHeader: Short.ReadHeader, Idle: Short.Idle, HeaderBytes: Short.HeaderBytes, Conns: 1000}

// Server returns a server with the limits of connections. Listener has the limit of their number.
func (l Limits) Server(h http.Handler) *http.Server {
	return &http.Server{
		Handler: serving(h), ConnContext: withConn, ConnState: noteHijack,
		ReadHeaderTimeout: l.ReadHeader, ReadTimeout: l.Read,
		WriteTimeout: l.Write, IdleTimeout: l.Idle, MaxHeaderBytes: l.HeaderBytes,
	}
}

// Listener returns a listener with at most as many connections as the limit. Those above
// it must not wait: behind them, a probe of the kubelet would wait as well. They take the
// place of another one, or are closed at once.
func (l Limits) Listener(inner net.Listener) net.Listener {
	return &listener{Listener: inner, limit: l.conns(), quick: l.Write > 0}
}

// DescriptorsOfConn is the least number of descriptors that a process has for each connection of a listener.
const DescriptorsOfConn = 8

// Most returns how many connections a listener serves at a time in this process: Conns, or what its descriptors allow.
func (l Limits) Most() int { return l.conns() }

// conns is the number of connections that a listener may have in this process.
func (l Limits) conns() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return l.Conns
	}
	return int(max(1, min(uint64(l.Conns), r.Cur/DescriptorsOfConn)))
}
