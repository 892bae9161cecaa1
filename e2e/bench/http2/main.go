// SPDX-License-Identifier: Apache-2.0

// Command http2 measures the memory of HTTP/2 servers that hold many connections with one open
// gRPC stream each, as konnectivity-server does: golang.org/x/net/http2, grpc-go with and
// without its buffers, and the tunnel's own HTTP/2. Each server is a process of its own on a
// Unix socket.
//
// Start with measure; the servers are in servers.go.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == "serve" {
		exitOn(serve(os.Args[2], os.Args[3]))
		return
	}
	clients := flag.Int("clients", 5000, "connections to each server")
	flag.Parse()
	fmt.Printf("| server | RSS idle, MB | RSS with %d clients, MB | KB for each client |\n|---|--:|--:|--:|\n", *clients)
	for _, s := range servers {
		idle, full, err := measure(s.name, *clients)
		exitOn(err)
		fmt.Printf("| %s | %.1f | %.1f | %.1f |\n", s.title, idle, full, (full-idle)*1024/float64(*clients))
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "http2:", err)
		os.Exit(1)
	}
}

// measure starts a server and returns its resident memory in MiB, idle and with n clients.
func measure(name string, n int) (idle, full float64, err error) {
	exe, err := os.Executable()
	if err != nil {
		return 0, 0, err
	}
	dir, err := os.MkdirTemp("", "http2-")
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "s")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, "serve", name, socket)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	conns := make([]net.Conn, 0, n)
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	first, err := connect(ctx, socket)
	if err != nil {
		return 0, 0, err
	}
	_ = first.Close()
	if idle, err = settled(ctx, cmd.Process.Pid); err != nil {
		return 0, 0, err
	}
	for range n {
		c, err := connect(ctx, socket)
		if err != nil {
			return 0, 0, err
		}
		conns = append(conns, c)
	}
	full, err = settled(ctx, cmd.Process.Pid)
	return idle, full, err
}

// connect opens a connection with one gRPC stream, and returns once the server has read it.
func connect(ctx context.Context, socket string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	for ; err != nil && ctx.Err() == nil; c, err = d.DialContext(ctx, "unix", socket) {
		time.Sleep(20 * time.Millisecond) // the server is starting
	}
	if err != nil {
		return nil, err
	}
	var out, block bytes.Buffer
	enc, fr := hpack.NewEncoder(&block), http2.NewFramer(&out, bufio.NewReader(c))
	out.WriteString(http2.ClientPreface)
	err = fr.WriteSettings()
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", method},
		{":authority", "localhost"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		err = errors.Join(err, enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	err = errors.Join(err, fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}), fr.WritePing(false, [8]byte{}))
	if err == nil {
		_, err = c.Write(out.Bytes())
	}
	for err == nil { // the answer to the ping comes after the stream was opened
		var f http2.Frame
		if f, err = fr.ReadFrame(); err != nil {
			break
		}
		if p, ok := f.(*http2.PingFrame); ok && p.IsAck() {
			return c, nil
		}
	}
	_ = c.Close()
	return nil, err
}

// settled returns a process's resident memory once it changes by less than 1 % in a second.
func settled(ctx context.Context, pid int) (float64, error) {
	last := -1.0
	for ctx.Err() == nil {
		now, err := rss(pid)
		if err != nil {
			return 0, err
		}
		if last > 0 && now > 0.99*last && now < 1.01*last {
			return now, nil
		}
		last = now
		time.Sleep(time.Second)
	}
	return 0, ctx.Err()
}

// rss is the resident memory of a process in MiB.
func rss(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 64)
			return n / 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmRSS", pid)
}
