package shell_test

import (
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/shell"
)

// TestShortSlices: all threads have the slice, those that come later too, and keep
// their priority.
func TestShortSlices(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Skip("the kernel does not tell:", err)
	}
	before.Runtime = 1_000_000
	if err := unix.SchedSetAttr(0, before, 0); err != nil {
		t.Skip("the kernel forbids it:", err)
	}
	if now, err := unix.SchedGetAttr(0, 0); err != nil || now.Runtime != before.Runtime {
		t.Skip("the kernel has no such slices", err)
	}
	shell.ShortSlices()
	done := make(chan struct{})
	for range 4 { // more threads
		go func() { runtime.LockOSThread(); <-done }()
	}
	defer close(done)
	runtime.Gosched()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		id, _ := strconv.Atoi(task.Name())
		attr, err := unix.SchedGetAttr(id, 0)
		if err != nil {
			continue
		}
		if attr.Runtime != uint64(shell.Slice) || attr.Nice != before.Nice || attr.Policy != before.Policy {
			t.Errorf("thread %d has %+v, before %+v", id, attr, before)
		}
	}
}
