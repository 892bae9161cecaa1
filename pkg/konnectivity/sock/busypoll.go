package sock

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BusyPoll lets a process whose connections have just fallen silent look for more during
// d before it sleeps; 0, the default, lets it sleep at once. A processor that has gone to
// sleep takes tens of microseconds to come back, in a virtual machine even more, and an
// echo through the tunnel waits for that once in each process and direction.
//
// It does nothing where Go code may run on several processors: a thread of Go's waits for
// the network there while another one looks.
func BusyPoll(d time.Duration) {
	if runtime.GOMAXPROCS(0) > 1 {
		d = 0
	}
	idle.limit.Store(int64(d))
}

const (
	// bulkRead is the number of bytes of one read from which on it counts as bulk.
	bulkRead = 8 << 10
	// afterBulk is for how long nobody looks after a bulk read: transfers want processors
	// for work.
	afterBulk = 2 * time.Millisecond
	// slowYield is after how long the processor must be back when it has been offered to
	// others: those who take part in an echo need it for less.
	slowYield = 150 * time.Microsecond
	// afterSlow is for how long nobody looks when it was not.
	afterSlow = 20 * time.Millisecond
	// maxMisses is the number of looks in a row that may see nothing before only one wait
	// in probeEvery begins with a look.
	maxMisses  = 8
	probeEvery = 32
)

// idle is the process's.
var idle = poller{fd: sync.OnceValue(pollFD)}

// poller looks whether there is something for the network poller.
type poller struct {
	limit atomic.Int64 // nanoseconds
	rest  atomic.Int64 // no look before that time, as of clock
	busy  atomic.Bool  // somebody looks
	fd    func() int   // of Go's network poller, -1 where it is not known

	// Guarded by busy.
	misses  int // looks in a row that saw nothing
	skipped int // waits since the last look
}

var began = time.Now()

// clock is the time in nanoseconds since the start.
func clock() int64 { return int64(time.Since(began)) }

// pollFD returns the descriptor of Go's network poller, or -1 where it cannot be told from
// others. That descriptor is readable while the poller has something to fetch.
func pollFD() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	found := -1
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err != nil || to != "anon_inode:[eventpoll]" {
			continue
		}
		fd, err := strconv.Atoi(e.Name())
		if err != nil || found >= 0 {
			return -1
		}
		found = fd
	}
	return found
}

// read is told about each read of n bytes.
func (p *poller) read(n int) {
	if n >= bulkRead && p.limit.Load() > 0 {
		p.rest.Store(clock() + int64(afterBulk))
	}
}

// wait is called by a goroutine that is about to wait for its connection. It looks for
// something on any connection for a while, if nobody else does and that promises anything.
func (p *poller) wait() {
	if p.limit.Load() == 0 || clock() < p.rest.Load() || !p.busy.CompareAndSwap(false, true) {
		return
	}
	defer p.busy.Store(false)
	if p.misses >= maxMisses && p.skipped < probeEvery-1 {
		p.skipped++
		return
	}
	fd := p.fd()
	if fd < 0 {
		p.limit.Store(0)
		return
	}
	runtime.Gosched() // who can run goes first
	p.skipped = 0
	p.misses++
	if p.look(fd) {
		p.misses = 0
	}
}

// look tells whether the poller has something to fetch before the time is over. Between
// looks it offers the processor to other processes.
func (p *poller) look(fd int) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	now := clock()
	end := now + p.limit.Load()
	for now < end && now >= p.rest.Load() {
		if ready(poll) {
			return true
		}
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		before := now
		now = clock()
		if now-before > int64(slowYield) {
			p.rest.Store(now + int64(afterSlow))
		}
	}
	return ready(poll)
}

// ready tells, without waiting, whether a descriptor is readable.
func ready(poll []unix.PollFd) bool {
	var none unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(poll))), uintptr(len(poll)),
		uintptr(unsafe.Pointer(&none)), 0, 0, 0)
	return errno == 0 && n > 0
}
