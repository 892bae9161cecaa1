// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// clock runs a program for which it is another time, for example "clock 1h kubelet --config=...". All of its threads and
// child processes see that time, static programs too; timers and the machine's clock stay as they are. It is a tracer that answers
// the calls that read the time, which the program makes because it finds no vDSO.
func clock(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errors.New("want clock OFFSET COMMAND [ARG ...]")
	}
	offset, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // only the thread that has started a process traces it
	pid, err := syscall.ForkExec(self, append([]string{"testpod", inClock}, args[1:]...), &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = syscall.Kill(pid, syscall.SIGTERM) })()
	return (&tracer{pid: pid, offset: offset, known: map[int]bool{pid: true}}).run()
}

// enterClock has the kernel stop this process, which is traced, where it reads the time, and becomes the program.
func enterClock(args []string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	// Of struct seccomp_data: the number of the call at 0, the lower half of its first argument at 16.
	const load, equal, end = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: load, K: 0},
		{Code: equal, K: unix.SYS_CLOCK_GETTIME, Jf: 3},
		{Code: load, K: 16},
		{Code: equal, K: unix.CLOCK_REALTIME, Jt: 2},
		{Code: equal, K: unix.CLOCK_REALTIME_COARSE, Jt: 1},
		{Code: end, K: unix.SECCOMP_RET_ALLOW},
		{Code: end, K: unix.SECCOMP_RET_TRACE},
	}
	runtime.LockOSThread() // the filter is the thread's, and that of what it executes
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return fmt.Errorf("PR_SET_SECCOMP: %w", err)
	}
	return syscall.Exec(path, args, os.Environ())
}

// tracer runs a process with all that it starts.
type tracer struct {
	pid    int
	offset time.Duration
	known  map[int]bool // threads that have begun
}

// run returns when the process has ended.
func (t *tracer) run() error {
	for set := false; ; {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("wait4: %w", err)
		case status.Stopped():
			if !set { // the process before its first instruction
				const events = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK
				if err := unix.PtraceSetOptions(tid, events|unix.PTRACE_O_TRACEEXEC|unix.PTRACE_O_TRACESECCOMP|unix.PTRACE_O_EXITKILL); err != nil {
					return fmt.Errorf("PTRACE_SETOPTIONS: %w", err)
				}
				set = true
			}
			// A thread may have been killed meanwhile.
			if err := unix.PtraceCont(tid, t.stopped(tid, status)); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("PTRACE_CONT: %w", err)
			}
		default:
			delete(t.known, tid)
			if tid == t.pid && status.Signaled() {
				return exitError(128 + int(status.Signal()))
			}
			if tid == t.pid {
				return exitError(status.ExitStatus())
			}
		}
	}
}

// stopped does what a stop of a thread is for. It returns the signal that the thread is to get.
func (t *tracer) stopped(tid int, status unix.WaitStatus) int {
	begins := !t.known[tid]
	t.known[tid] = true
	switch {
	case status.StopSignal() == unix.SIGTRAP:
		switch status.TrapCause() {
		case unix.PTRACE_EVENT_SECCOMP:
			t.answer(tid)
		case unix.PTRACE_EVENT_EXEC:
			hideVDSO(tid)
		}
		return 0
	case begins && status.StopSignal() == unix.SIGSTOP:
		return 0
	}
	return int(status.StopSignal())
}

// answer puts the other time where the call would, and has the kernel leave the call out.
func (t *tracer) answer(tid int) {
	var regs unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &regs) != nil {
		return
	}
	now := time.Now().Add(t.offset)
	var spec [16]byte
	binary.LittleEndian.PutUint64(spec[:], uint64(now.Unix()))
	binary.LittleEndian.PutUint64(spec[8:], uint64(now.Nanosecond()))
	if _, err := unix.PtracePokeData(tid, uintptr(regs.Rsi), spec[:]); err != nil {
		return
	}
	regs.Orig_rax, regs.Rax = ^uint64(0), 0
	_ = unix.PtraceSetRegs(tid, &regs)
}

// hideVDSO changes the entry of the auxiliary vector that has the address of the vDSO, whose functions read the time
// without a call. The vector follows the arguments and the environment on the stack of a new program.
func hideVDSO(tid int) {
	var regs unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &regs) != nil {
		return
	}
	at := uintptr(regs.Rsp)
	word := func() uint64 {
		var b [8]byte
		if _, err := unix.PtracePeekData(tid, at, b[:]); err != nil {
			return 0
		}
		at += 8
		return binary.LittleEndian.Uint64(b[:])
	}
	at += uintptr(word()) * 8 // argc, then argv
	word()                    // its end
	for word() != 0 {         // the environment
	}
	const sysinfoEHDR, ignore = 33, 1
	for {
		key := word()
		if key == sysinfoEHDR {
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], ignore)
			_, _ = unix.PtracePokeData(tid, at-8, b[:])
		}
		if key == 0 {
			return
		}
		word()
	}
}
