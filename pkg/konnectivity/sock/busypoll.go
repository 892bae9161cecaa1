package sock

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BusyPoll lets this process look for more during d before it sleeps, whenever one of its
// connections has just fallen silent; with 0, as before the first call, it sleeps at once.
// A processor that has gone to sleep takes tens of microseconds to come back, in a virtual
// machine even more, and an echo through the tunnel waits for that once in each process
// and direction. While it looks nothing else of the process runs: timers, and goroutines
// that come back from a blocking system call, wait for up to d.
//
// It does nothing where Go code may run on several processors: a thread of Go's waits for
// the network there while another one looks. The error tells why Go's network poller is
// not known, without which there is nothing to look at; the process then sleeps at once.
func BusyPoll(d time.Duration) error {
	idle.limit.Store(0)
	if d <= 0 || runtime.GOMAXPROCS(0) > 1 {
		return nil
	}
	breather() // from here on there is a network poller
	fd, err := pollFD()
	if err != nil {
		return err
	}
	idle.fd = fd
	idle.limit.Store(int64(d))
	return nil
}

// What these numbers guard against has tests; the numbers themselves are estimates, of
// which no others were measured.
const (
	// bulkRead is the number of bytes of one read from which on it counts as bulk.
	bulkRead = 8 << 10
	// afterBulk is for how long nobody looks after a bulk read: transfers want processors
	// for work.
	afterBulk = 2 * time.Millisecond
	// slowYield is after how long the processor must be back when it has been offered to
	// others: those who take part in an echo need it for less.
	slowYield = 150 * time.Microsecond
	// afterSlow is for how long nobody looks when it was not; twice as long each time that
	// this happens in a row, up to afterSlowest.
	afterSlow    = 20 * time.Millisecond
	afterSlowest = time.Second
	// maxMisses is how far the looks that came to nothing may outweigh the others before
	// only one wait in probeEvery begins with a look. One that came to something makes up
	// for hitWorth of them.
	maxMisses  = 8
	hitWorth   = 2
	probeEvery = 32
	// aloneTries is how often all goroutines that can run are let go first, and aloneTime
	// how soon the processor is back when there are none.
	aloneTries = 4
	aloneTime  = 2 * time.Microsecond
)

// idle is the process's.
var idle = poller{yield: yield, alone: alone}

// poller looks whether there is something for the network poller.
type poller struct {
	limit atomic.Int64 // nanoseconds
	rest  atomic.Int64 // no look before that time, as of clock
	reads atomic.Int64 // that brought bytes
	busy  atomic.Bool  // somebody looks
	fd    int          // of Go's network poller; set before limit
	yield func()       // offers the processor to other processes
	alone func() bool  // no other goroutine can run

	// Guarded by busy.
	misses  int           // looks that came to nothing, see maxMisses
	skipped int           // waits since the last look
	seen    bool          // the last look saw something, of which it is to be known what
	before  int64         // reads then
	slow    time.Duration // the last rest, if the last look was interrupted
}

var began = time.Now()

// clock is the time in nanoseconds since the start.
func clock() int64 { return int64(time.Since(began)) }

// pollFD returns the descriptor of Go's network poller. That descriptor is readable while
// the poller has something to fetch.
func pollFD() (int, error) {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("Go's network poller is not known: %w", err)
	}
	found := -1
	for _, e := range entries {
		if to, err := os.Readlink(dir + "/" + e.Name()); err != nil || to != "anon_inode:[eventpoll]" {
			continue
		}
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return 0, fmt.Errorf("Go's network poller is not known: %s/%s: %w", dir, e.Name(), err)
		}
		if found >= 0 {
			return 0, fmt.Errorf("Go's network poller is not known: descriptors %d and %d are both of epoll", found, fd)
		}
		found = fd
	}
	if found < 0 {
		return 0, errors.New("Go's network poller is not known: no descriptor in " + dir + " is of epoll")
	}
	return found, nil
}

// read is told about each read of n bytes.
func (p *poller) read(n int) {
	if n <= 0 || p.limit.Load() <= 0 {
		return
	}
	p.reads.Add(1)
	if n >= bulkRead {
		p.restUntil(clock() + int64(afterBulk))
	}
}

// restUntil keeps everybody from looking before t, or before a later time that was given.
func (p *poller) restUntil(t int64) {
	for {
		rest := p.rest.Load()
		if rest >= t || p.rest.CompareAndSwap(rest, t) {
			return
		}
	}
}

// wait is called by a goroutine that is about to wait for its connection. It looks for
// something on any connection for a while, if nobody else does and that promises anything.
func (p *poller) wait() {
	limit := p.limit.Load()
	if limit <= 0 || clock() < p.rest.Load() || !p.busy.CompareAndSwap(false, true) {
		return
	}
	defer p.busy.Store(false)
	p.judge()
	if p.misses >= maxMisses && p.skipped < probeEvery-1 {
		p.skipped++
		return
	}
	if !p.alone() {
		return
	}
	p.skipped = 0
	if p.seen, p.before = p.look(limit), p.reads.Load(); !p.seen {
		p.misses = min(p.misses+1, maxMisses)
	}
}

// judge tells what the last look came to. What it saw need not have been bytes: room for
// more to send is something for the network poller, too, and so is a new connection.
func (p *poller) judge() {
	switch {
	case !p.seen:
		return
	case p.reads.Load() != p.before:
		p.misses = max(p.misses-hitWorth, 0)
	default:
		p.misses = min(p.misses+1, maxMisses)
	}
	p.seen = false
}

// look tells whether the network poller has something to fetch before the time is over.
// Between looks it offers the processor to other processes, and ends if those keep it.
func (p *poller) look(limit int64) bool {
	poll := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	now := clock()
	for end := now + limit; now < end; {
		if p.ready(poll) {
			return true
		}
		p.yield()
		before := now
		now = clock()
		if now-before > int64(slowYield) {
			p.slow = min(max(2*p.slow, afterSlow), afterSlowest)
			p.restUntil(now + int64(p.slow))
			return false
		}
	}
	p.slow = 0
	return p.ready(poll)
}

// ready tells, without waiting, whether a descriptor is readable. Where that cannot be
// told nobody looks any more.
func (p *poller) ready(poll []unix.PollFd) bool {
	var none unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(poll))), uintptr(len(poll)),
		uintptr(unsafe.Pointer(&none)), 0, 0, 0)
	switch {
	case errno == unix.EINTR || errno == 0 && n == 0:
		return false
	case errno != 0 || poll[0].Revents&unix.POLLIN == 0:
		p.limit.Store(0)
		return false
	}
	return true
}

// yield offers the processor to other processes.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// alone lets the goroutines that can run go first, and tells whether none is left.
func alone() bool {
	for range aloneTries {
		before := clock()
		runtime.Gosched()
		runtime.Gosched() // now and then Go's scheduler takes the same goroutine again; not twice
		if clock()-before < int64(aloneTime) {
			return true
		}
	}
	return false
}
