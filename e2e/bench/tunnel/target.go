// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"time"
)

// The first byte that a client sends says what the target does.
const (
	opEcho   = 'e' // send back what comes
	opSource = 'd' // send zeros for ever
	opSink   = 'u' // read for ever
	opStall  = 's' // read nothing
	opCount  = 'c' // read to the end and send the number of bytes to the collector
)

func listen() (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
}

// runTarget is the destination of all tunneled connections, as a process of its
// own: "bench-tunnel target". It prints its address and the collector's.
func runTarget() error {
	l, err := listen()
	if err != nil {
		return err
	}
	collector, err := listen()
	if err != nil {
		return err
	}
	counts := make(chan int64, 1024)
	go serveCounts(collector, counts)
	fmt.Println(l.Addr(), collector.Addr())
	go func() { // end with the parent
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			time.Sleep(time.Millisecond)
			continue
		}
		go serveTarget(c, counts)
	}
}

func serveCounts(l net.Listener, counts <-chan int64) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		for n := range counts {
			if binary.Write(c, binary.BigEndian, n) != nil {
				break
			}
		}
	}
}

var zeros = make([]byte, 256<<10)

func serveTarget(c net.Conn, counts chan<- int64) {
	defer c.Close()
	var op [1]byte
	if _, err := io.ReadFull(c, op[:]); err != nil {
		return
	}
	switch op[0] {
	case opEcho:
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			if _, err := c.Write(buf[:n]); err != nil {
				return
			}
		}
	case opSource:
		for {
			if _, err := c.Write(zeros); err != nil {
				return
			}
		}
	case opSink:
		buf := make([]byte, 256<<10)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
		}
	case opStall:
		time.Sleep(10 * time.Minute)
	case opCount:
		n, _ := io.Copy(io.Discard, c)
		counts <- n
	}
}

// target is the process that all tunneled connections end at.
type target struct {
	cmd           *exec.Cmd
	stdin         io.Closer
	addr, collect string
	counts        net.Conn // numbers of bytes of opCount connections
}

func startTarget() (*target, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	t := &target{cmd: exec.CommandContext(context.Background(), exe, "target")}
	in, _ := t.cmd.StdinPipe()
	out, _ := t.cmd.StdoutPipe()
	t.stdin = in
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err = fmt.Fscan(out, &t.addr, &t.collect); err != nil {
		return t, err
	}
	t.counts, err = dialDirect(context.Background(), t.collect)
	return t, err
}

func (t *target) stop() {
	_ = t.stdin.Close()
	_ = t.cmd.Wait()
}
