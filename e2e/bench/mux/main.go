// SPDX-License-Identifier: Apache-2.0

// Command mux compares ways to carry many connections over one encrypted one:
// our link, yamux, HTTP/2 with one stream per connection, and QUIC. Both ends run
// in this process, over the loopback device; the load is the same for all.
//
// All have windows of the same size, in both directions and from the beginning,
// so the comparison does not depend on their defaults: 1 MiB per stream, and
// per connection more than the streams of any row can use up together. Our link
// and yamux have no window per connection, HTTP/2 and QUIC one of 128 MiB. The
// windows do not grow: our link's greatest is its first one, and so is QUIC's;
// those of yamux and HTTP/2 never do. Two differences remain: a stream of our
// link may have 256 KiB more in its sender's queue, and QUIC has congestion
// control of its own over UDP in place of the kernel's TCP.
//
// It is a separate module, so the libraries in the comparison do not become
// dependencies.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// stream is one carried connection.
type stream interface {
	io.ReadWriteCloser
}

// mux is one way to carry streams. start connects both ends; accept serves a
// stream at the far one.
type mux struct {
	name  string
	start func(accept func(stream)) (open func() (stream, error), stop func(), err error)
}

var muxes = []mux{{"our link", startLink}, {"yamux", startYamux}, {"HTTP/2", startHTTP2}, {"QUIC", startQUIC}}

// The windows of all ways, in bytes.
const (
	streamWindow = 1 << 20
	connWindow   = 128 << 20
)

// The first byte on a stream tells the far end what to do.
const (
	opEcho   = 'e'
	opSource = 'd'
)

var reps = flag.Int("reps", 3, "repetitions")
var length = flag.Duration("time", time.Second, "duration of one measurement")

func main() {
	flag.Parse()
	values := map[string]map[string][]float64{}
	for rep := range *reps {
		for i := range muxes {
			m := muxes[(i+rep)%len(muxes)]
			for _, r := range rows {
				v, err := measure(m, r)
				if err != nil {
					fmt.Fprintf(os.Stderr, "%s %s: %v\n", m.name, r.name, err)
					continue
				}
				if values[r.name] == nil {
					values[r.name] = map[string][]float64{}
				}
				values[r.name][m.name] = append(values[r.name][m.name], v)
			}
		}
	}
	printTable(values)
}

func printTable(values map[string]map[string][]float64) {
	fmt.Print("| both ends in one process, two processors |")
	for _, m := range muxes {
		fmt.Printf(" %s |", m.name)
	}
	fmt.Printf("\n|---|%s\n", strings.Repeat("--:|", len(muxes)))
	for _, r := range rows {
		fmt.Printf("| %s |", r.name)
		for _, m := range muxes {
			v := values[r.name][m.name]
			if len(v) == 0 {
				fmt.Print(" – |")
				continue
			}
			slices.Sort(v)
			fmt.Printf(" %.4g |", v[len(v)/2])
		}
		fmt.Println()
	}
}

// row is one line of the table.
type row struct {
	name string
	run  func(open func() (stream, error)) (float64, error)
}

var rows = []row{
	{"MB/s, 1 stream", func(o func() (stream, error)) (float64, error) { return bulk(o, 1, false) }},
	{"MB/s, 16 streams", func(o func() (stream, error)) (float64, error) { return bulk(o, 16, false) }},
	{"MB/s, 64 streams", func(o func() (stream, error)) (float64, error) { return bulk(o, 64, false) }},
	{"CPU s/GB, both ends, 16 streams", func(o func() (stream, error)) (float64, error) { return bulk(o, 16, true) }},
	{"64-byte echo µs p50", func(o func() (stream, error)) (float64, error) { return echo(o, 0, 50) }},
	{"echo ms p50 next to 4 bulk streams", func(o func() (stream, error)) (float64, error) { v, err := echo(o, 4, 50); return v / 1e3, err }},
	{"echo ms p99 next to 4 bulk streams", func(o func() (stream, error)) (float64, error) { v, err := echo(o, 4, 99); return v / 1e3, err }},
	{"opens + 1 byte per s, 64 at once", opens},
	{"% of its rate that a stream keeps while 16 others are not read", stalled},
}

func measure(m mux, r row) (float64, error) {
	open, stop, err := m.start(serve)
	if err != nil {
		return 0, err
	}
	defer stop()
	return r.run(open)
}

var zeros = make([]byte, 64<<10)

// serve is the far end of a stream.
func serve(s stream) {
	defer s.Close()
	b := make([]byte, 4096)
	if _, err := io.ReadFull(s, b[:1]); err != nil {
		return
	}
	if b[0] == opSource {
		for {
			if _, err := s.Write(zeros); err != nil {
				return
			}
		}
	}
	for {
		n, err := s.Read(b)
		if err != nil {
			return
		}
		if _, err := s.Write(b[:n]); err != nil {
			return
		}
	}
}

// source opens a stream that sends, and counts what comes.
func source(open func() (stream, error), total *atomic.Int64) (stream, error) {
	s, err := open()
	if err != nil {
		return nil, err
	}
	if _, err := s.Write([]byte{opSource}); err != nil {
		return nil, err
	}
	if total == nil {
		return s, nil
	}
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, err := s.Read(b)
			total.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
	return s, nil
}

func bulk(open func() (stream, error), n int, cost bool) (float64, error) {
	var total atomic.Int64
	for range n {
		s, err := source(open, &total)
		if err != nil {
			return 0, err
		}
		defer s.Close()
	}
	time.Sleep(*length / 4)
	from, start, used := total.Load(), time.Now(), cpu()
	time.Sleep(*length)
	bytes := float64(total.Load() - from)
	if cost {
		return (cpu() - used) / bytes * 1e9, nil
	}
	return bytes / time.Since(start).Seconds() / 1e6, nil
}

func cpu() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// echo returns a percentile of the echo times in microseconds.
func echo(open func() (stream, error), beside, percentile int) (float64, error) {
	var total atomic.Int64
	for range beside {
		s, err := source(open, &total)
		if err != nil {
			return 0, err
		}
		defer s.Close()
	}
	s, err := open()
	if err != nil {
		return 0, err
	}
	defer s.Close()
	if _, err := s.Write([]byte{opEcho}); err != nil {
		return 0, err
	}
	b := make([]byte, 64)
	var ts []time.Duration
	for end := time.Now().Add(*length); time.Now().Before(end); {
		start := time.Now()
		if _, err := s.Write(b); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(s, b); err != nil {
			return 0, err
		}
		ts = append(ts, time.Since(start))
	}
	slices.Sort(ts)
	return ts[min(len(ts)*percentile/100, len(ts)-1)].Seconds() * 1e6, nil
}

func opens(open func() (stream, error)) (float64, error) {
	var n atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(*length)
	for range 64 {
		wg.Go(func() {
			for time.Now().Before(end) {
				s, err := open()
				if err != nil {
					return
				}
				b := []byte{opEcho, 1}
				if _, err := s.Write(b); err == nil {
					if _, err := io.ReadFull(s, b[:1]); err == nil {
						n.Add(1)
					}
				}
				s.Close()
			}
		})
	}
	wg.Wait()
	return float64(n.Load()) / length.Seconds(), nil
}

// stalled measures how much of its rate a stream keeps while other streams are
// not read.
func stalled(open func() (stream, error)) (float64, error) {
	var total atomic.Int64
	s, err := source(open, &total)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	rate := func() float64 {
		time.Sleep(*length / 4)
		from := total.Load()
		time.Sleep(*length)
		return float64(total.Load() - from)
	}
	before := rate()
	for range 16 {
		s, err := source(open, nil)
		if err != nil {
			return 0, err
		}
		defer s.Close()
	}
	return 100 * rate() / before, nil
}
