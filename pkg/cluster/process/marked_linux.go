// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// FindMarked returns the IDs of the processes of this user that were started
// for the directory mark, in no particular order. The calling process is never
// among them.
func FindMarked(mark string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	want := []byte(MarkEnv + "=" + mark)
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Other users' processes are not readable, and ended ones are gone:
		// neither belong to this supervisor.
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil {
			continue
		}
		for entry := range bytes.SplitSeq(env, []byte{0}) {
			if bytes.Equal(entry, want) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids, nil
}

// KillMarked ends all processes of mark, first with SIGTERM and after grace
// with SIGKILL, and returns how many there were. It fails if some are left.
func KillMarked(ctx context.Context, mark string, grace time.Duration) (int, error) {
	first, err := FindMarked(mark)
	if err != nil || len(first) == 0 {
		return 0, err
	}
	if left, err := signalUntilGone(ctx, mark, syscall.SIGTERM, grace); err != nil || len(left) == 0 {
		return len(first), err
	}
	left, err := signalUntilGone(ctx, mark, syscall.SIGKILL, 5*time.Second)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("processes %v do not end, not even by SIGKILL", left)
	}
	return len(first), err
}

// signalUntilGone signals the processes with the mark, including those that
// start meanwhile, and returns those that are left at the limit.
func signalUntilGone(ctx context.Context, mark string, sig syscall.Signal, limit time.Duration) ([]int, error) {
	deadline := time.Now().Add(limit)
	signaled := map[int]bool{}
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		pids, err := FindMarked(mark)
		if err != nil || len(pids) == 0 || time.Now().After(deadline) {
			return pids, err
		}
		for _, pid := range pids {
			if signaled[pid] {
				continue
			}
			signaled[pid] = true
			if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				return pids, fmt.Errorf("sending %v to process %d: %w", sig, pid, err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// rssBytes returns the resident memory of a process; 0 if the process is gone.
func rssBytes(pid int) int64 {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
