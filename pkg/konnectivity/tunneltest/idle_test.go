// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"bytes"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

const (
	// idleGoroutines is the number of goroutines that one connection may have on each side:
	// the one that reads its socket. The goroutine that reads the link writes what arrives
	// over the link.
	idleGoroutines = 1
	// idleHeap is the bytes of heap that a connection may have on each side. An idle
	// connection holds no buffer: all buffers but those for keystrokes have 16 KiB and
	// more. So it holds no more than the structures of a socket, a stream and their
	// connection.
	idleHeap = 4 << 10
	// idleHeapGRPC is the same for the server of a gRPC client, which needs an HTTP/2
	// connection with its own tables.
	idleHeapGRPC = 2 * idleHeap
	// idleStack is the bytes of stack that a goroutine may have, on average over all of the
	// process, clients and destinations too. They begin with 2 KiB, or with what is usual in
	// the process, and double; the race detector's are larger.
	idleStack = 16 << 10
	// idleRest is the goroutines that either side may have in addition to those of its connections,
	// for a short time.
	idleRest = 20
)

// sides are what is counted, each with how many ends of a connection it has.
var sides = map[string]int{"server": 1, "agent": 1, "together": 2}

const ourPackages = "/pkg/konnectivity/"

// sidesOf tells whose a goroutine or a piece of memory is. What is done for one side has
// its package in its stack, unless another package of ours has begun a goroutine for it.
func sidesOf(has func(name string) bool) (of []string) {
	for _, side := range []string{"server", "agent"} {
		if has(ourPackages + side + ".") {
			of = append(of, side)
		}
	}
	if has(ourPackages) && !has(ourPackages+"tunneltest") {
		of = append(of, "together")
	}
	return of
}

// cost is what the sides have.
type cost struct {
	goroutines, heap map[string]int
	stack            int // of the whole process
	all              int // goroutines of the whole process
}

// costNow is what both sides have at present, of the heap what was allocated while
// MemProfileRate was 1.
func costNow(t *testing.T) cost {
	t.Helper()
	runtime.GC()
	runtime.GC() // the first one completes the profile of what the second one frees
	c := cost{goroutines: map[string]int{}, heap: map[string]int{}, all: runtime.NumGoroutine()}
	stacks := make([]byte, 64<<20)
	n := runtime.Stack(stacks, true)
	if n == len(stacks) {
		t.Fatal("stacks of goroutines take too much room")
	}
	for stack := range bytes.SplitSeq(stacks[:n], []byte("\n\n")) {
		for _, side := range sidesOf(func(name string) bool { return bytes.Contains(stack, []byte(name)) }) {
			c.goroutines[side]++
		}
	}
	records := make([]runtime.MemProfileRecord, 100_000)
	n, ok := runtime.MemProfile(records, false)
	if !ok {
		t.Fatalf("the profile of memory has %d records", n)
	}
	for _, r := range records[:n] {
		for _, side := range sidesOf(func(name string) bool { return passes(r.Stack(), name) }) {
			c.heap[side] += int(r.InUseBytes())
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c.stack = int(m.StackInuse)
	return c
}

// passes reports whether a function with this in its name is in a stack.
func passes(stack []uintptr, name string) bool {
	frames := runtime.CallersFrames(stack)
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, name) {
			return true
		}
		if !more {
			return false
		}
	}
}

// TestIdleConnections: a connection that carried bytes and carries none now costs a
// server and an agent one goroutine each and no buffer.
func TestIdleConnections(t *testing.T) {
	for mode, dial := range map[string]func(*Rig) Dialer{
		"grpc":         func(r *Rig) Dialer { return GRPC(r.GRPC) },
		"http-connect": func(r *Rig) Dialer { return Connect(r.Connect) },
	} {
		t.Run(mode, func(t *testing.T) {
			n := thorough(1000, 100) // the profile of all allocations takes most of the time
			r := NewRig(t, server.Config{})
			r.StartAgent(agent.Config{}, "")
			addr := Target(t, Echo)
			idle(t, dial(r), addr, 20) // what a process has once is there
			rate := runtime.MemProfileRate
			runtime.MemProfileRate = 1
			defer func() { runtime.MemProfileRate = rate }()
			before := costNow(t)
			idle(t, dial(r), addr, n)
			after := costNow(t)
			most := map[string]int{"server": idleHeap, "agent": idleHeap}
			if mode == "grpc" {
				most["server"] = idleHeapGRPC
			}
			most["together"] = most["server"] + most["agent"]
			for end := time.Now().Add(Patience / 4); !(withinGoroutines(before, after, n) && withinHeap(before, after, n, most)) && time.Now().Before(end); {
				time.Sleep(20 * time.Millisecond) // what dialed may still be about to end, and buffers about to be freed
				after = costNow(t)
			}
			judgeIdle(t, before, after, n, most)
		})
	}
}

// idle makes connections that carry some bytes in both directions and stay open.
func idle(t *testing.T, dial Dialer, addr string, n int) {
	t.Helper()
	question := make([]byte, 64<<10) // enough for buffers of all sizes
	var wg sync.WaitGroup
	turns := make(chan struct{}, 8)
	for range n {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			c, err := dial(t.Context(), addr)
			if err != nil {
				t.Errorf("dial: %v", err)
				return
			}
			t.Cleanup(func() { c.Close() })
			wg.Go(func() { _, _ = c.Write(question) })
			if _, err := readFull(c, make([]byte, len(question)), Patience); err != nil {
				t.Errorf("echo: %v", err)
			}
		})
	}
	wg.Wait()
}

func withinGoroutines(before, after cost, n int) bool {
	for side, ends := range sides {
		if after.goroutines[side]-before.goroutines[side] > ends*idleGoroutines*n+idleRest {
			return false
		}
	}
	return true
}

func withinHeap(before, after cost, n int, most map[string]int) bool {
	for side := range sides {
		if (after.heap[side]-before.heap[side])/n > most[side] {
			return false
		}
	}
	return true
}

func judgeIdle(t *testing.T, before, after cost, n int, most map[string]int) {
	t.Helper()
	for side, ends := range sides {
		more, heap := after.goroutines[side]-before.goroutines[side], (after.heap[side]-before.heap[side])/n
		t.Logf("%s: %d goroutines of %d connections, %d bytes of heap for each", side, more, n, heap)
		// One that was about to end when they were first counted is missing now.
		if more < ends*n-idleRest || more > ends*idleGoroutines*n+idleRest {
			t.Errorf("%s: %d goroutines for %d connections, about %d are right", side, more, n, ends*idleGoroutines*n)
		}
		if heap > most[side] || heap < 100 {
			t.Errorf("%s: %d bytes of heap for a connection, at most %d are right", side, heap, most[side])
		}
	}
	stack := (after.stack - before.stack) / max(1, after.all-before.all)
	t.Logf("%d bytes of stack for a goroutine", stack)
	if stack > idleStack {
		t.Errorf("%d bytes of stack for a goroutine, at most %d are right", stack, idleStack)
	}
}
