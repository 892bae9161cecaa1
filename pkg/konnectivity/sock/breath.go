package sock

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// breathEvery is the number of bytes after which a reader that never had to wait
// lets others have a look at the network. Go polls the network only when no
// goroutine can run, or every 10 ms: without this, a few bulk connections that
// keep all processors of the process busy delay every keystroke by that much.
const breathEvery = 256 << 10

// breath is a descriptor that becomes readable at once, and so a way to wait for
// no longer than the runtime needs to poll the network.
type breath struct {
	mu     sync.Mutex
	file   *os.File // keeps the descriptor open
	raw    syscall.RawConn
	armed  bool
	n      [8]byte
	waitFn func(fd uintptr) bool
}

var breather = sync.OnceValue(func() *breath {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil
	}
	b := &breath{file: os.NewFile(uintptr(fd), "eventfd")}
	if b.raw, err = b.file.SyscallConn(); err != nil {
		return nil
	}
	b.waitFn = b.wait
	return b
})

// Breathe returns after the network was polled.
func Breathe() {
	b := breather()
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed = false
	_ = b.raw.Read(b.waitFn)
}

// wait makes the descriptor readable when it is called first, which is seen by
// the poll that follows, and clears it when it is called again.
func (b *breath) wait(fd uintptr) bool {
	if !b.armed {
		b.armed = true
		b.n = [8]byte{1}
		_, err := writev(int(fd), [][]byte{b.n[:]})
		return err != nil
	}
	_, _ = readv(int(fd), [][]byte{b.n[:]})
	return true
}
