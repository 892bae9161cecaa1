package shell

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// Slice is the time slice that ShortSlices asks for. Linux's default is 0.7 ms and
// more, the more processors there are.
const Slice = 300 * time.Microsecond

// ShortSlices asks the kernel, since Linux 6.12, to let this process take its share
// of the processors in short slices. It gets no more of them than before, but where
// others want them, too, it does not wait for the end of their slices each time:
// one keystroke wakes server and agent twice each. Older kernels ignore it.
func ShortSlices() {
	for range 3 { // threads that were created meanwhile may have missed it
		set, err := shortSlices()
		if err != nil {
			klog.V(2).InfoS("Cannot shorten time slices", "err", err)
		}
		if err != nil || !set {
			return
		}
	}
}

// shortSlices tells whether there was a thread with another slice. New threads
// inherit that of the thread that creates them.
func shortSlices() (set bool, err error) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return false, err
	}
	for _, t := range tasks {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		attr, err := unix.SchedGetAttr(id, 0)
		if err != nil {
			continue // the thread has ended
		}
		if attr.Policy != unix.SCHED_NORMAL || attr.Runtime == uint64(Slice) {
			continue // somebody has chosen another policy, where this means something else
		}
		attr.Runtime = uint64(Slice)
		if err := unix.SchedSetAttr(id, attr, 0); err != nil {
			return false, os.NewSyscallError("sched_setattr", err)
		}
		set = true
	}
	return set, nil
}
