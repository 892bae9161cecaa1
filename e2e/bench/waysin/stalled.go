// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/bench/internal/goals"
)

// stalledClients read nothing while others download, and silentClients send nothing.
const (
	stalledClients = 16
	silentClients  = 1000
)

// benchStalled measures what clients that do not read cost the others, in per cent of what
// these get alone, and how a thousand clients that send nothing end.
func benchStalled(ctx context.Context, o options) error {
	var c closers
	defer c.close()
	started, target, err := c.startWays(o) //nolint:contextcheck // the programs end with the benchmark
	if err != nil {
		return err
	}
	ways, names := []*way{started.socks5, started.ssh}, []string{"fairlead", "ssh -D"}
	row := fmt.Sprintf("rate of 8 downloads next to %d stalled clients, in %% of the rate without them", stalledClients)
	fmt.Printf("| %s | fairlead | ssh -D | goal | |\n| --- | --- | --- | --- | --- |\n", row)
	got := make([][]float64, 2)
	for range o.reps {
		for i, w := range ways {
			share, err := w.besideStalled(target, o.duration)
			if err != nil {
				return fmt.Errorf("%s next to stalled clients: %w", names[i], err)
			}
			got[i] = append(got[i], share)
		}
	}
	fmt.Printf("| median of %d | %.0f | %.0f | %s |\n\n", o.reps, goals.Quantile(got[0], 0.5), goals.Quantile(got[1], 0.5), o.missed.Cells(row, goals.Goal{AtLeast: 95}, goals.Quantile(got[0], 0.5)))
	return silent(ctx, o)
}

func (w *way) besideStalled(target string, d time.Duration) (percent float64, err error) {
	alone, err := w.download(target, 8, d)
	if err != nil {
		return 0, err
	}
	for range stalledClients {
		nc, err := w.open(target, 'd') // it begins to send, and this side does not read
		if err != nil {
			return 0, err
		}
		defer nc.Close()
	}
	time.Sleep(d / 4) // until buffers are full
	beside, err := w.download(target, 8, d)
	return 100 * beside / alone, err
}

// silent opens connections on which nothing is sent, and prints when the last is closed, and
// the memory of the proxy.
func silent(ctx context.Context, o options) error {
	addr, stop, err := process("socks5-proxy", "network") //nolint:contextcheck // the program ends with the benchmark
	if err != nil {
		return err
	}
	defer stop()
	pid := processID(addr)
	before := memory(pid)
	opened, closed, during, err := silence(ctx, addr, pid)
	if err != nil {
		return err
	}
	after := memory(pid)
	_, _, again, err := silence(ctx, addr, pid)
	if err != nil {
		return err
	}
	fmt.Printf("| %d silent clients | | goal | |\n| --- | --- | --- | --- |\n| opened within, s | %.1f | | |\n", silentClients, opened.Seconds())
	fmt.Printf("| each closed within, s | %.1f | %s |\n", closed.Seconds(), o.missed.Cells("silent clients closed within", goals.Goal{AtMost: 10}, closed.Seconds()))
	fmt.Printf("| memory before / with them / after, MiB | %.0f / %.0f / %.0f | | |\n", before, during, after)
	// The Go runtime returns memory to the kernel minutes later: the next clients show whether the first left any behind.
	fmt.Printf("| memory with as many once more, MiB | %.0f | | |\n", again)
	fmt.Printf("| the same / with the first | %.2f | %s |\n", again/during, o.missed.Cells("memory with silent clients once more", goals.Goal{AtMost: 1.1}, again/during))
	return nil
}

// silence opens the silent clients and waits until all are closed. It returns how long it took to open them, the longest life of one, and the
// memory of the proxy while all were open.
func silence(ctx context.Context, addr string, pid int) (opened, closed time.Duration, during float64, err error) {
	var open sync.WaitGroup
	var longest atomic.Int64
	began := time.Now()
	for range silentClients {
		nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return 0, 0, 0, err
		}
		since := time.Now()
		open.Go(func() {
			_, _ = io.Copy(io.Discard, nc)
			_ = nc.Close()
			for life := int64(time.Since(since)); ; {
				if was := longest.Load(); life <= was || longest.CompareAndSwap(was, life) {
					return
				}
			}
		})
	}
	opened = time.Since(began)
	during = memory(pid)
	open.Wait()
	return opened, time.Duration(longest.Load()), during, nil
}

// processID is that of the process that listens at an address; process has started it last.
func processID(addr string) int {
	pidMu.Lock()
	defer pidMu.Unlock()
	return pids[addr]
}

var (
	pidMu sync.Mutex
	pids  = map[string]int{} // by the address that the process listens at
)

var residentLine = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// memory is the resident memory of a process in MiB, 0 if it is not known.
func memory(pid int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	m := residentLine.FindSubmatch(data)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(m[1]))
	return float64(n) / 1024
}
