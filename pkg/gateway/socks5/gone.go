// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// defaultGoneAfter is that of the keep-alive probes of both ends. Linux sends none while bytes are unacknowledged, and sends these
// again for a quarter of an hour.
const defaultGoneAfter = time.Minute

// goneWatch resets connections to ends that are gone while bytes are on their way to them.
type goneWatch struct {
	after time.Duration
	ends  map[string]*net.TCPConn

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
	err     error
}

func watchGone(after time.Duration, client net.Conn, dest *net.TCPConn) *goneWatch {
	w := &goneWatch{after: after, ends: map[string]*net.TCPConn{}}
	if t, ok := client.(*net.TCPConn); ok {
		w.ends["client"] = t
	}
	if dest != nil {
		w.ends["destination"] = dest
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.pause(), w.check)
	return w
}

func (w *goneWatch) pause() time.Duration { return w.after / 4 }

func (w *goneWatch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	for name, socket := range w.ends {
		if isGone(socket, w.after) {
			w.err = fmt.Errorf("the %s is gone: it has acknowledged nothing for %v", name, w.after)
			abort(socket)
			return
		}
	}
	w.timer.Reset(w.pause())
}

// stop ends the watch, and returns an error if it has ended the connection.
func (w *goneWatch) stop() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
	return w.err
}
