// SPDX-License-Identifier: Apache-2.0

// Package gone finds connections whose other end is gone while bytes are on their way to it: Start watches one. TCP keepalive does
// not find these, because Linux sends no probes while bytes are unacknowledged, and sends the bytes again for a quarter of an hour.
// TCP_USER_TIMEOUT would also end connections to ends that read slowly.
package gone

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// Default is how long an end may acknowledge nothing: as long as keepalive probes take to find one to which no bytes are on their way.
const Default = time.Minute

// Watch watches one connection, or the two that a relay connects.
type Watch struct {
	after time.Duration
	ends  map[string]*net.TCPConn

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
	err     error
}

// Start watches connections. It resets the connection to an end that has acknowledged nothing for the time after. The keys of ends name
// the other ends of the connections, for errors. It watches only TCP, and only on Linux.
func Start(after time.Duration, ends map[string]net.Conn) *Watch {
	w := &Watch{after: after, ends: map[string]*net.TCPConn{}}
	for name, nc := range ends {
		if t, ok := nc.(*net.TCPConn); ok && t != nil {
			w.ends[name] = t
		}
	}
	if len(w.ends) == 0 {
		return w
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.pause(), w.check)
	return w
}

func (w *Watch) pause() time.Duration { return w.after / 4 }

func (w *Watch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	for name, socket := range w.ends {
		if isGone(socket, w.after) {
			w.err = fmt.Errorf("the %s is gone: it has acknowledged nothing for %v", name, w.after)
			Abort(socket)
			return
		}
	}
	w.timer.Reset(w.pause())
}

// Stop ends the watch, and returns an error if it has reset a connection.
func (w *Watch) Stop() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
	return w.err
}

// Abort closes a connection so that the other end sees a reset.
func Abort(nc net.Conn) {
	if t, ok := nc.(interface{ SetLinger(sec int) error }); ok {
		_ = t.SetLinger(0)
	}
	_ = nc.Close()
}
