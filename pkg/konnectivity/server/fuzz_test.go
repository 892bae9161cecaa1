// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/httpconnect"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
)

// FuzzConnectRequest: what is taken for a request has one destination and nothing of
// a second line in it.
func FuzzConnectRequest(f *testing.F) {
	f.Add("CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	f.Add("CONNECT [fd00::1]:443 HTTP/1.0\r\n\r\n")
	f.Add("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	f.Add("CONNECT\r\n\r\n")
	f.Add("CONNECT  HTTP/1.1\r\n\r\n")
	f.Add("CONNECT  HTTP/0.0\r\n0:\r\n\r\n")
	f.Add("CONNECT x:1 HTTP/2.0\r\n\r\n")
	for _, c := range strictRequests {
		f.Add(c.head)
	}
	f.Fuzz(func(t *testing.T, head string) {
		request, status, err := parseConnect([]byte(head))
		addr := request.address
		if (status == 0) != (err == nil) {
			t.Errorf("status %d, error %v", status, err)
		}
		if strings.ContainsAny(addr, "\r\n @/?#") || err == nil && !strings.HasPrefix(head, "CONNECT "+addr+" HTTP/1.") {
			t.Errorf("destination %q", addr)
		}
	})
}

// FuzzRequestInPieces: a request means the same however it is cut into packets, and what
// comes behind it is neither lost nor changed.
func FuzzRequestInPieces(f *testing.F) {
	f.Add("CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n\x16\x03\x01", []byte{1, 30, 2})
	f.Add("CONNECT x:1 HTTP/1.1\r\nA: "+strings.Repeat("a", maxRequest)+"\r\n\r\n", []byte{255, 255})
	f.Add("CONNECT x:1 HTTP/1.1\r\n", []byte{3})
	f.Add("\r\n\r\n\r\n\r\n", []byte{1, 1, 1})
	f.Add("CONNECT x:1 HTTP/1.1\nHost: x\r\n\r\n", []byte{22, 1})
	f.Add("CONNECT x:1 HTTP/1.1\r\nA: "+strings.Repeat("a", maxRequest)+"\n\r\n", []byte{255, 255})
	f.Fuzz(func(t *testing.T, request string, cuts []byte) {
		var pieces []string
		left := request
		for _, n := range cuts {
			if n := min(int(n)*100, len(left)); n > 0 {
				pieces, left = append(pieces, left[:n]), left[n:]
			}
		}
		for _, n := range cuts {
			if n := min(int(n), len(left)); n > 0 {
				pieces, left = append(pieces, left[:n]), left[n:]
			}
		}
		whole, cut := readPieces(t, []string{request}), readPieces(t, append(pieces, left))
		if whole != cut {
			t.Errorf("whole %+v, in pieces %+v", whole, cut)
		}
	})
}

// requestRead is what a server made of a request.
type requestRead struct {
	address string
	status  int
	failed  bool
	behind  string
}

func readPieces(t *testing.T, pieces []string) (r requestRead) {
	t.Helper()
	near, far := net.Pipe()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		defer far.Close()
		for _, p := range pieces {
			if _, err := far.Write([]byte(p)); err != nil {
				return
			}
		}
	})
	defer near.Close()
	c := &connectFrontend{in: netx.New(near)}
	request, status, err := c.readRequest()
	r = requestRead{address: request.address, status: status, failed: err != nil}
	for err == nil {
		var chunk *buffer.Chunk
		if chunk, err = c.in.ReadChunk(buffer.MaxPayload); err == nil {
			r.behind += string(chunk.Bytes())
			chunk.Release()
		}
	}
	return r
}

// FuzzReason: whatever an agent says about a failed dial, the client reads one status
// line of bounded length and what was said behind it.
func FuzzReason(f *testing.F) {
	f.Add("dial tcp 10.0.0.1:443: connect: connection refused")
	f.Add("two\r\nHTTP/1.1 200 OK\r\n\r\n")
	f.Add("")
	f.Add(strings.Repeat("\u00e9 long", 1000))
	f.Fuzz(func(t *testing.T, text string) {
		answer := string(httpconnect.Refusal(http.StatusBadGateway, text, text))
		line, rest, _ := strings.Cut(answer, "\r\n")
		if len(line) > 300 || strings.IndexFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) >= 0 {
			t.Errorf("status line %q", line)
		}
		if !strings.HasPrefix(rest, "Content-Type: ") || !strings.HasSuffix(rest, "\r\n\r\n"+text) {
			t.Errorf("behind the status line %q", rest)
		}
		res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusBadGateway || len(res.Status) <= len("502 ") {
			t.Errorf("read as status %q", res.Status)
		}
	})
}

// FuzzIdentifiers: what agents send about themselves is read or refused, and can be
// used.
func FuzzIdentifiers(f *testing.F) {
	f.Add("ipv4=1.2.3.4&ipv6=fd00::1&host=a&host=b&cidr=10.0.0.0/8&default-route=true")
	f.Add("%zz")
	f.Add("host=&default-route=maybe")
	f.Fuzz(func(t *testing.T, query string) {
		ids, err := ParseIdentifiers(query)
		if err != nil {
			return
		}
		r := newRegistry([]Strategy{StrategyDestHost, StrategyDefaultRoute, StrategyDefault}, NewMetrics())
		b := &Backend{agentID: "a", ids: ids, dials: map[*attempt]time.Time{}}
		r.add(b)
		r.remove(b)
		for _, p := range r.pools {
			if len(p.groups) != 0 || len(p.byKey) != 0 {
				t.Errorf("%q leaves something in strategy %v", query, p.strategy)
			}
		}
	})
}

// FuzzStrategies: what is accepted reads the same again.
func FuzzStrategies(f *testing.F) {
	f.Add("destHost,defaultRoute,default")
	f.Add(",")
	f.Fuzz(func(t *testing.T, list string) {
		got, err := ParseStrategies(list)
		if err != nil {
			return
		}
		var names []string
		for _, s := range got {
			names = append(names, s.String())
		}
		again, err := ParseStrategies(strings.Join(names, ","))
		if err != nil || len(again) != len(got) {
			t.Errorf("%q became %v, %v", list, again, err)
		}
	})
}
