package sock

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// testPoller looks at a descriptor of its own, for as long as it takes to yield once, and
// counts how often that was.
type testPoller struct {
	*poller
	looks int
	long  time.Duration // how long others keep the processor
}

func newTestPoller(t *testing.T) *testPoller {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	p := &testPoller{poller: &poller{fd: fd, alone: func() bool { return true }}}
	p.yield = func() {
		p.looks++
		if p.long > 0 {
			time.Sleep(p.long)
		}
	}
	p.limit.Store(1)
	return p
}

// arm lets the descriptor be readable.
func (p *testPoller) arm(t *testing.T) {
	t.Helper()
	if _, err := unix.Write(p.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
}

// A look ends when there is something, and else with the time.
func TestBusyPollSees(t *testing.T) {
	p := newTestPoller(t)
	const limit = 100 * time.Millisecond
	p.limit.Store(int64(limit))
	p.yield = func() {
		if p.looks++; p.looks == 3 {
			p.arm(t)
		}
	}
	p.wait()
	if !p.seen || p.looks != 3 {
		t.Errorf("seen %t after offering the processor %d times, want it after 3", p.seen, p.looks)
	}
	p = newTestPoller(t)
	p.limit.Store(int64(limit))
	p.yield = func() { time.Sleep(time.Microsecond) }
	from := time.Now()
	if p.wait(); p.seen || p.misses != 1 || p.rest.Load() == 0 && time.Since(from) < limit {
		t.Errorf("nothing is there: seen %t, %d misses, %v", p.seen, p.misses, time.Since(from))
	}
}

// After looks that came to nothing only one wait in 32 begins with a look.
func TestBusyPollStopsWhereNothingComes(t *testing.T) {
	p := newTestPoller(t)
	for range maxMisses + 10*probeEvery {
		p.wait()
		p.rest.Store(0) // the machine may have stood still
	}
	if want := maxMisses + 10; p.looks != want {
		t.Errorf("%d looks, want %d", p.looks, want)
	}
}

// What a look has seen counts if bytes were read then, and as nothing if not.
func TestBusyPollCountsWhatItBrings(t *testing.T) {
	p := newTestPoller(t)
	p.misses = 5
	p.arm(t)
	for range 3 { // a look that sees something does not yield
		p.wait()
		p.read(1)
	}
	p.judge()
	if p.misses != 0 {
		t.Errorf("%d misses after looks that brought bytes", p.misses)
	}
	for range 3 {
		p.wait()
		p.read(0)
		p.read(-1)
	}
	p.judge()
	if p.misses != 3 {
		t.Errorf("%d misses after 3 looks that saw something but brought no bytes", p.misses)
	}
	p.misses, p.skipped = maxMisses, probeEvery
	p.wait()
	p.read(1)
	if p.judge(); p.misses != maxMisses-hitWorth {
		t.Errorf("one look that brought bytes leaves %d misses of %d", p.misses, maxMisses)
	}
}

// Nobody looks where goroutines can run, during a rest, or while another one looks.
func TestBusyPollLeavesOthersTheProcessor(t *testing.T) {
	p := newTestPoller(t)
	p.alone = func() bool { return false }
	p.wait()
	p.alone = func() bool { return true }
	p.restUntil(clock() + int64(time.Hour))
	p.wait()
	p.rest.Store(0)
	p.busy.Store(true)
	p.wait()
	p.busy.Store(false)
	if p.looks != 0 || p.misses != 0 || p.skipped != 0 {
		t.Errorf("%d looks, %d misses, %d skipped", p.looks, p.misses, p.skipped)
	}
	if p.wait(); p.looks != 1 {
		t.Error("does not look when it may")
	}
}

// A bulk read keeps everybody from looking for a while; it does not shorten a rest.
func TestBusyPollRestsAfterBulk(t *testing.T) {
	p := newTestPoller(t)
	p.read(bulkRead - 1)
	if p.rest.Load() != 0 {
		t.Error("a read that is not of bulk keeps others from looking")
	}
	from := clock()
	p.read(bulkRead)
	if rest := p.rest.Load() - from; rest < int64(afterBulk) {
		t.Errorf("rests for %v", time.Duration(rest))
	}
	long := clock() + int64(time.Hour)
	p.restUntil(long)
	p.read(bulkRead)
	if p.rest.Load() != long {
		t.Error("a bulk read shortens the rest")
	}
}

// Where others keep the processor that was offered to them nobody looks for a while, and
// for longer where that happens again.
func TestBusyPollRestsWhereOthersWantTheProcessor(t *testing.T) {
	p := newTestPoller(t)
	p.limit.Store(int64(time.Minute))
	p.long = 2 * slowYield
	slow := func() time.Duration {
		p.rest.Store(0)
		p.misses = 0
		before, from := p.looks, clock()
		p.wait()
		if p.looks != before+1 || p.seen || p.misses != 1 {
			t.Fatalf("offered the processor %d times more, seen %t, %d misses", p.looks-before, p.seen, p.misses)
		}
		if rest := time.Duration(p.rest.Load() - from); rest < p.slow {
			t.Fatalf("rests for %v instead of %v", rest, p.slow)
		}
		return p.slow
	}
	if first, then := slow(), slow(); first != afterSlow || then != 2*afterSlow {
		t.Errorf("rests for %v, then for %v", first, then)
	}
	for range 10 {
		slow()
	}
	if rest := slow(); rest != afterSlowest {
		t.Errorf("rests for %v at last", rest)
	}
	p.limit.Store(1)
	for p.long = 0; p.slow > 0; p.wait() { // the machine itself may stand still now and then
		p.rest.Store(0)
	}
	p.limit.Store(int64(time.Minute))
	p.long = 2 * slowYield
	if rest := slow(); rest != afterSlow {
		t.Errorf("rests for %v after a look that nobody interrupted", rest)
	}
}

// Without a descriptor to look at nobody looks any more.
func TestBusyPollWithoutPoller(t *testing.T) {
	p := newTestPoller(t)
	p.fd = 1 << 20
	p.wait()
	if p.limit.Load() != 0 || p.seen {
		t.Errorf("goes on with a descriptor that is not open: seen %t", p.seen)
	}
}

// Goroutines that can run go first.
func TestAlone(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	quiet := func() bool {
		for range 100 {
			if alone() {
				return true
			}
		}
		return false
	}
	if !quiet() {
		t.Error("no other goroutine can run, and it does not see that")
	}
	var over atomic.Bool
	var turns atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !over.Load() {
			turns.Add(1)
			for from := clock(); clock()-from < 10*int64(aloneTime); {
			}
			runtime.Gosched()
		}
	}()
	runtime.Gosched()
	before, wrong := turns.Load(), 0
	const rounds = 500
	for range rounds {
		if alone() {
			wrong++
		}
	}
	if wrong > rounds/100 {
		t.Errorf("%d of %d times it takes itself for alone beside a goroutine that can run", wrong, rounds)
	}
	if n := turns.Load() - before; n < int64(rounds-wrong)*aloneTries*3/4 {
		t.Errorf("let the other one go %d times", n)
	}
	over.Store(true)
	<-ended
}

// A read that has to wait begins with a look at Go's own poller, in a process that was
// told to.
func TestBusyPollBeforeReadsThatWait(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	looks := 0
	before := idle.alone
	idle.alone = func() bool { looks++; return true }
	t.Cleanup(func() {
		_ = BusyPoll(0)
		idle.alone = before
		idle.rest.Store(0)
		idle.misses, idle.skipped, idle.slow = 0, 0, 0
	})
	near, far := socketPair(t)
	in := New(near)
	exchange := func() {
		t.Helper()
		go func() { time.Sleep(5 * time.Millisecond); _, _ = far.Write([]byte("x")) }()
		chunks, err := in.ReadChunks(MaxRead)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range chunks {
			c.Release()
		}
	}
	if exchange(); looks != 0 {
		t.Error("a process looks that was not told to")
	}
	if err := BusyPoll(100 * time.Microsecond); err != nil {
		t.Fatal(err)
	}
	reads := idle.reads.Load()
	exchange()
	if looks == 0 {
		t.Error("a read that had to wait did not look first")
	}
	if idle.limit.Load() == 0 {
		t.Error("Go's poller was no good to look at")
	}
	if idle.reads.Load() == reads {
		t.Error("a read that brought bytes was not counted")
	}
	// Go's own poll may come first, but hardly ever does while the process is busy here.
	for try := 0; ; try++ {
		if _, err := far.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		idle.rest.Store(0)
		if idle.look(int64(5 * time.Millisecond)) {
			return
		}
		if try == 20 {
			t.Fatal("what has come on a connection is never seen")
		}
		if _, err := near.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

// Processes with several processors do not look.
func TestBusyPollWantsOneProcessor(t *testing.T) {
	t.Cleanup(func() { _ = BusyPoll(0) })
	for _, c := range []struct {
		processors int
		d, want    time.Duration
	}{{1, time.Millisecond, time.Millisecond}, {1, 0, 0}, {2, time.Millisecond, 0}} {
		before := runtime.GOMAXPROCS(c.processors)
		err := BusyPoll(c.d)
		runtime.GOMAXPROCS(before)
		if got := time.Duration(idle.limit.Load()); err != nil || got != c.want {
			t.Errorf("%d processors, %v: looks for %v: %v", c.processors, c.d, got, err)
		}
	}
}

// Go's poller is found, and not taken for another one.
func TestPollFD(t *testing.T) {
	t.Cleanup(func() { _ = BusyPoll(0) })
	breather() // there is a poller then
	fd, err := pollFD()
	if err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(fd))); err != nil || to != "anon_inode:[eventpoll]" {
		t.Fatalf("descriptor %d is %q: %v", fd, to, err)
	}
	other, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(other) })
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if err := BusyPoll(time.Millisecond); err == nil || !strings.Contains(err.Error(), strconv.Itoa(fd)) || !strings.Contains(err.Error(), strconv.Itoa(other)) {
		t.Errorf("two pollers, %d and %d: %v", fd, other, err)
	}
	if idle.limit.Load() != 0 {
		t.Error("looks without knowing at what")
	}
}
