// SPDX-License-Identifier: Apache-2.0

package membudget

import "github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"

// Queues toward peers make their sources wait, so nothing on them is reset: they get
// shorter. With half of the memory used, each may take shortRoom, with all of it
// leastRoom, which lets every connection go on: a buffer of the second size and of the
// first.
const (
	shortRoom = 16384 - buffer.HeaderRoom
	leastRoom = 1024 - buffer.HeaderRoom
)

// Room is the number of bytes that a queue may hold that can make its source wait:
// most, or less where much memory is used. It is never 0.
func (a *Account) Room(most int) int {
	if a == nil || !a.l.tight() {
		return most
	}
	free, half := a.l.cfg.Total-a.l.cfg.Used(), a.l.cfg.Total/2
	return min(most, max(leastRoom, int(shortRoom*free/half)))
}

func (l *Budget) tight() bool { return l.cfg.Total > 0 && l.cfg.Used() > l.cfg.Total/2 }

// Take asks for n bytes by which the windows of one client may grow. What a window
// promises can come at any time, so all of these together have an eighth of the memory,
// and get no more of it while the queues have to be short.
func (l *Budget) Take(n int) bool {
	if l.cfg.Total <= 0 {
		return true
	}
	if l.tight() {
		return false
	}
	if l.lent.Add(int64(n)) > l.cfg.Total/8 {
		l.Give(n)
		return false
	}
	return true
}

// Give returns what Take gave.
func (l *Budget) Give(n int) {
	if l.cfg.Total > 0 {
		l.lent.Add(-int64(n))
	}
}
