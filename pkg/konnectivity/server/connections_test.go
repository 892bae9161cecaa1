// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
)

// carrying is a server with so many connections on each of some links. The serial numbers begin with 1, and those of a link
// are spread. Each third dial is not answered.
func carrying(tb testing.TB, links, each int) *Server {
	tb.Helper()
	s := New(Config{}, NewMetrics())
	tb.Cleanup(func() { stopNow(tb, s) })
	for n := range links {
		near, far := net.Pipe()
		l := link.New(near, 1<<20, link.Config{})
		tb.Cleanup(func() { far.Close(); l.Close() })
		go func() { _, _ = io.Copy(io.Discard, far) }()
		b := &Backend{agentID: string(rune('a' + n)), link: l, dials: map[*attempt]time.Time{}}
		s.reg.add(b)
		for i := range each {
			serial := int64(i*links + n + 1)
			p := &Pending{s: s, address: "192.0.2.1:1", user: sinktest.NewSink(nil, true), serial: serial}
			at := &attempt{p: p, b: b}
			p.cur = at
			st, err := l.Dial(p.address, at, true)
			if err != nil {
				tb.Fatal(err)
			}
			if serial%3 != 0 {
				at.Dialed(st, nil)
			}
		}
	}
	return s
}

// TestConnectionsInPages: pages of any size have all connections that are open, each once and in the order of serial
// numbers, and say whether there are others.
func TestConnectionsInPages(t *testing.T) {
	const links, each = 5, 300
	s := carrying(t, links, each)
	for _, limit := range []int{1, 7, 100, 999, 1000, 1001} {
		var all []int64
		for after := int64(0); ; after = all[len(all)-1] {
			page := s.Connections(after, limit)
			for _, c := range page.Connections {
				all = append(all, c.Serial)
			}
			if full := len(page.Connections) == limit; len(page.Connections) > limit || page.More && !full {
				t.Fatalf("a page of %d after %d has %d connections, more: %v", limit, after, len(page.Connections), page.More)
			}
			if !page.More {
				break
			}
		}
		want := int64(1)
		for _, serial := range all {
			if want%3 == 0 {
				want++
			}
			if serial != want {
				t.Fatalf("pages of %d: %d comes where %d is next", limit, serial, want)
			}
			want++
		}
		if len(all) != links*each*2/3 {
			t.Errorf("pages of %d have %d connections", limit, len(all))
		}
	}
}

// TestConnectionsOfMany: to find one of many connections, the server keeps few.
func TestConnectionsOfMany(t *testing.T) {
	s := carrying(t, 2, 5000)
	if n := testing.AllocsPerRun(5, func() { s.Connections(5000, 1) }); n > 10 {
		t.Errorf("a page of one connection takes %v allocations", n)
	}
}

// BenchmarkConnections: a page of many connections, and one connection.
func BenchmarkConnections(b *testing.B) {
	s := carrying(b, 20, 1500)
	for _, limit := range []int{5000, 500, 1} {
		b.Run(fmt.Sprint("limit=", limit), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got := s.Connections(1000, limit); len(got.Connections) != limit {
					b.Fatalf("%d connections", len(got.Connections))
				}
			}
		})
	}
}
