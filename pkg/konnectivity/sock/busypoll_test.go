package sock

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// oneProcessor lets Go code run on one processor, as the programs do that look for more:
// with several, another thread takes what is to be seen.
func oneProcessor(t *testing.T) {
	t.Helper()
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// looking returns a poller that looks for d.
func looking(d time.Duration) *poller {
	p := &poller{fd: sync.OnceValue(pollFD)}
	p.limit.Store(int64(d))
	return p
}

// A look ends when something has come on any connection of the process, and takes all of
// its time where nothing does.
func TestBusyPollSees(t *testing.T) {
	oneProcessor(t)
	near, far := socketPair(t)
	const limit = 5 * time.Millisecond // Go polls the network itself after 10 ms
	seen := 0
	for range 20 {
		if _, err := far.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		p := looking(limit)
		p.wait()
		if p.misses == 0 {
			seen++
		}
		if _, err := near.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if seen < 10 { // now and then Go's own poll comes first
		t.Errorf("%d of 20 looks saw what was there", seen)
	}
	for try := 0; ; try++ {
		time.Sleep(20 * time.Millisecond) // Go fetches what is left
		p := looking(limit)
		from := time.Now()
		p.wait()
		if took := time.Since(from); p.misses == 1 && (took >= limit || p.rest.Load() > 0) {
			return
		} else if try == 10 {
			t.Fatalf("nothing is there: %d looks without anything, %v", p.misses, took)
		}
	}
}

// Who waits for a connection begins with a look; after a bulk read nobody does.
func TestBusyPollBeforeReadsThatWait(t *testing.T) {
	oneProcessor(t)
	t.Cleanup(func() { idle.limit.Store(0); idle.rest.Store(0); idle.misses = 0 })
	near, far := socketPair(t)
	in := New(near)
	exchange := func(n int) {
		t.Helper()
		go func() { time.Sleep(5 * time.Millisecond); _, _ = far.Write(make([]byte, n)) }()
		for got := 0; got < n; {
			chunks, err := in.ReadChunks(MaxRead)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range chunks {
				got += c.Len()
				c.Release()
			}
		}
	}
	exchange(1)
	if idle.misses != 0 || idle.rest.Load() != 0 {
		t.Error("a process looks that was not told to")
	}
	BusyPoll(100 * time.Microsecond)
	exchange(1)
	if idle.misses == 0 {
		t.Error("a read that had to wait did not look first")
	}
	idle.rest.Store(0)
	exchange(1 << 20)
	if idle.rest.Load() == 0 {
		t.Error("a bulk read does not keep others from looking")
	}
}

// Waits during a rest, while another goroutine looks, and most of those after looks that
// saw nothing, are without a look.
func TestBusyPollStopsWhereItIsOfNoUse(t *testing.T) {
	oneProcessor(t)
	p := looking(time.Microsecond)
	p.rest.Store(clock() + int64(time.Hour))
	p.wait()
	p.rest.Store(0)
	p.busy.Store(true)
	p.wait()
	p.busy.Store(false)
	if p.misses != 0 {
		t.Error("looked during a rest, or beside another one")
	}
	for range maxMisses + 10*probeEvery {
		p.wait()
		p.rest.Store(0) // others may have wanted the processor
	}
	if want := maxMisses + 10; p.misses != want {
		t.Errorf("%d looks, want %d", p.misses, want)
	}
	none := &poller{fd: func() int { return -1 }}
	none.limit.Store(int64(time.Hour))
	none.wait()
	if none.limit.Load() != 0 {
		t.Error("goes on without knowing Go's poller")
	}
}

// Processes with several processors do not look.
func TestBusyPollWantsOneProcessor(t *testing.T) {
	t.Cleanup(func() { idle.limit.Store(0) })
	oneProcessor(t)
	BusyPoll(time.Millisecond)
	if idle.limit.Load() == 0 {
		t.Error("does not look with one processor")
	}
	runtime.GOMAXPROCS(2)
	BusyPoll(time.Millisecond)
	if idle.limit.Load() != 0 {
		t.Error("looks with two processors")
	}
}

// Go's poller is found, and not taken for another one.
func TestPollFD(t *testing.T) {
	socketPair(t) // there is a poller then
	fd := pollFD()
	if to, err := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(fd))); err != nil || to != "anon_inode:[eventpoll]" {
		t.Fatalf("descriptor %d is %q: %v", fd, to, err)
	}
	other, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(other) })
	if fd := pollFD(); fd != -1 {
		t.Errorf("took %d of two pollers", fd)
	}
}
