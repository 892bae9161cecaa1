// SPDX-License-Identifier: Apache-2.0

package netx

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// pollEvery is the number of bytes after which a reader that never had to wait
// lets others have a look at the network. Go polls the network only when no
// goroutine can run, or every 10 ms: without this, a few bulk connections that
// keep all processors of the process busy delay every keystroke by that much.
const pollEvery = 256 << 10

// poll is a descriptor that becomes readable at once, and so a way to wait for
// no longer than the runtime needs to poll the network.
type poll struct {
	mu     sync.Mutex
	file   *os.File // keeps the descriptor open
	raw    syscall.RawConn
	armed  bool
	n      [8]byte
	waitFn func(fd uintptr) bool
}

var networkPoll = sync.OnceValue(func() *poll {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil
	}
	p := &poll{file: os.NewFile(uintptr(fd), "eventfd")}
	if p.raw, err = p.file.SyscallConn(); err != nil {
		return nil
	}
	p.waitFn = p.wait
	return p
})

// PollNetwork has the runtime poll the network, and returns after that.
func PollNetwork() {
	p := networkPoll()
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = false
	_ = p.raw.Read(p.waitFn)
}

// wait makes the descriptor readable when it is called first, which is seen by
// the poll that follows, and clears it when it is called again.
func (p *poll) wait(fd uintptr) bool {
	if !p.armed {
		p.armed = true
		p.n = [8]byte{1}
		_, err := writev(int(fd), [][]byte{p.n[:]})
		return err != nil
	}
	_, _ = readv(int(fd), [][]byte{p.n[:]})
	return true
}
