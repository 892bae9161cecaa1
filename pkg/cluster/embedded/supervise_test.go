// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A lock or pipe that this process was started with is not handed on to programs
// that outlive it.
func TestOpenFilesAreNotHandedOn(t *testing.T) {
	fds := make([]int, 2)
	if err := unix.Pipe2(fds, 0); err != nil { // as a shell would hand it down: without O_CLOEXEC
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(fds[0]), unix.Close(fds[1]) })
	keepOpenFiles()
	for _, fd := range fds {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("file %d would be handed on (flags %x, %v)", fd, flags, err)
		}
	}
}
