// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/netip"
	"sync"
	"time"
)

// MaxFailures is how many wrong passwords of one client count at a time. Behind one address there may be several
// programs with an old password, and they must not keep those with the right one out.
const MaxFailures = 16

// Failures bounds how fast a client guesses: each wrong password counts for the delay, whether or not the client waits
// for the answer. It is for secrets that people choose; others cannot be guessed. The nil pointer bounds nothing.
type Failures struct {
	delay time.Duration

	mu       sync.Mutex
	byClient map[netip.Prefix]int
}

// NewFailures returns a bound of MaxFailures per delay for each client.
func NewFailures(delay time.Duration) *Failures {
	return &Failures{delay: delay, byClient: map[netip.Prefix]int{}}
}

// TooMany reports whether the client may try no password now. Ask before the comparison: neither a wrong nor a right
// password may show in the answer.
func (f *Failures) TooMany(client netip.Prefix) bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byClient[client] >= MaxFailures
}

// Add counts a wrong password.
func (f *Failures) Add(client netip.Prefix) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.byClient[client]++
	time.AfterFunc(f.delay, func() { f.forget(client) })
}

func (f *Failures) forget(client netip.Prefix) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byClient[client]--; f.byClient[client] == 0 {
		delete(f.byClient, client)
	}
}
