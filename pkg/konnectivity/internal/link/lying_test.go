// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
)

// raw returns a link and the connection of its peer, on which a test can send anything.
func raw(t *testing.T, server bool, cfg Config) (net.Conn, *Link, chan error) {
	t.Helper()
	a, b := net.Pipe()
	if !server {
		cfg.OnDial = func(st *Stream, address string) {
			s := sinktest.NewSink(st, true)
			st.SetReceiver(s)
			if address != "pending" {
				st.Accept()
			}
		}
	}
	l := New(b, 1<<20, cfg)
	done := make(chan error, 1)
	go func() { done <- l.Run() }()
	go func() { _, _ = io.Copy(io.Discard, a) }()
	t.Cleanup(func() { a.Close(); l.Close() })
	return a, l, done
}

func frame(typ byte, id uint32, payload []byte) []byte {
	return appendFrame(nil, typ, id, string(payload))
}

// TestLyingPeer checks that a violation of a stream's rules ends that stream, and that a
// violation of the protocol ends the link.
func TestLyingPeer(t *testing.T) {
	dial, pending := frame(typeDial, 1, []byte("x:1")), frame(typeDial, 1, []byte("pending"))
	for name, c := range map[string]struct {
		in   [][]byte
		ends bool   // the link ends
		rule string // the rule whose violation is reported
	}{
		"beyond the window":         {[][]byte{dial, frame(typeData, 1, make([]byte, 60000)), frame(typeData, 1, make([]byte, 60000)), frame(typeData, 1, make([]byte, 60000))}, false, "data beyond the window"},
		"data behind fin":           {[][]byte{dial, frame(typeFin, 1, nil), frame(typeData, 1, []byte("x"))}, false, "data behind the end"},
		"double fin":                {[][]byte{dial, frame(typeFin, 1, nil), frame(typeFin, 1, nil)}, false, "end is sent twice"},
		"double close":              {[][]byte{dial, frame(typeClose, 1, nil), frame(typeClose, 1, nil)}, false, ""},
		"credit overflow":           {[][]byte{dial, frame(typeCredit, 1, binary.BigEndian.AppendUint32(nil, 1<<31))}, false, "credit is too large"},
		"credit overflow by one":    {[][]byte{dial, frame(typeCredit, 1, binary.BigEndian.AppendUint32(nil, 1<<30))}, false, "credit is too large"},
		"credit of all bits":        {[][]byte{dial, frame(typeCredit, 1, binary.BigEndian.AppendUint32(nil, 1<<32-1))}, false, "credit is too large"},
		"double fin, often":         {[][]byte{dial, frame(typeFin, 1, nil), frame(typeFin, 1, nil), frame(typeFin, 1, nil)}, false, "end is sent twice"},
		"data before the answer":    {[][]byte{pending, frame(typeData, 1, []byte("x"))}, false, "data before the dial was answered"},
		"fin before the answer":     {[][]byte{pending, frame(typeFin, 1, nil)}, false, "end, credit or its lack before the dial was answered"},
		"blocked before the answer": {[][]byte{pending, frame(typeBlocked, 1, nil)}, false, "end, credit or its lack before the dial was answered"},
		"answer to a pending dial":  {[][]byte{pending, frame(typeDialed, 1, nil)}, true, ""},
		"unknown type":              {[][]byte{dial, frame(200, 1, []byte("future"))}, false, ""},
		"reset twice":               {[][]byte{dial, frame(typeReset, 1, nil), frame(typeReset, 1, nil)}, false, ""},
		"data before dial":          {[][]byte{frame(typeData, 1, []byte("x"))}, true, ""},
		"number used again":         {[][]byte{dial, dial}, true, ""},
		"empty data":                {[][]byte{dial, frame(typeData, 1, nil)}, true, ""},
		"oversized control":         {[][]byte{{typeFin, 0xff, 0xff, 0xff, 0, 0, 0, 1}}, true, ""},
		"oversized data":            {[][]byte{dial, {typeData, 0xff, 0xff, 0xff, 0, 0, 0, 1}}, true, ""},
		"short credit":              {[][]byte{dial, frame(typeCredit, 1, []byte{1})}, true, ""},
		"short ping":                {[][]byte{frame(typePing, 0, []byte{1})}, true, ""},
		"short pong":                {[][]byte{frame(typePong, 0, []byte{1})}, true, ""},
		"ping for a stream":         {[][]byte{dial, frame(typePing, 1, make([]byte, 8))}, true, ""},
		"drain for a stream":        {[][]byte{frame(typeDrain, 99, nil)}, true, ""},
		"dialed to an agent":        {[][]byte{dial, frame(typeDialed, 1, nil)}, true, ""},
		"hello again":               {[][]byte{frame(typeHello, 0, nil)}, true, ""},
		"unknown stream":            {[][]byte{dial, frame(typeFin, 77, nil)}, true, ""},
		"stream 0 data":             {[][]byte{frame(typeData, 0, []byte("x"))}, true, ""},
		"fin of ended stream":       {[][]byte{dial, frame(typeReset, 1, nil), frame(typeFin, 1, nil)}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			broken := make(chan string, 10)
			nc, l, done := raw(t, false, Config{Window: 128 << 10, OnViolation: func(rule string, first bool) {
				if first {
					broken <- rule
				}
			}})
			for _, f := range c.in {
				if _, err := nc.Write(f); err != nil {
					break
				}
			}
			if c.ends {
				select {
				case err := <-done:
					var pe *ProtocolError
					if !errors.As(err, &pe) {
						t.Errorf("link ended: %v", err)
					}
				case <-time.After(time.Minute):
					t.Error("link goes on")
				}
				return
			}
			for range 2 { // once the second is read, everything before it has been handled
				if _, err := nc.Write(frame(typePing, 0, make([]byte, 8))); err != nil {
					t.Fatalf("link ended: %v", <-done)
				}
			}
			switch {
			case name == "double close": // the link's answer may have ended the stream before the second
			case c.rule == "" && len(broken) > 0:
				t.Errorf("rule %q is said to be broken", <-broken)
			case c.rule != "" && (len(broken) != 1 || <-broken != c.rule):
				t.Errorf("broken rules are not one %q", c.rule)
			case c.rule != "" && !strings.HasPrefix(name, "double") && l.Streams() != 0:
				t.Error("the stream goes on")
			}
		})
	}
}

// TestTextIsUTF8 checks that texts from a peer reach all receivers as valid UTF-8, and that
// a text that is cut to fit into a frame is cut between characters.
func TestTextIsUTF8(t *testing.T) {
	a, l, _ := raw(t, true, Config{})
	sink := sinktest.NewSink(nil, true)
	st, err := l.Dial("x:1", sink, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Write(frame(typeDialFail, st.id, append([]byte{byte(tunnel.CodeDNS)}, "lookup \xff\xfe"...))); err != nil {
		t.Fatal(err)
	}
	<-sink.Answered
	if got := sink.DialErr().Error(); got != "lookup \uFFFD" {
		t.Errorf("the frontend got %q", got)
	}
	for _, s := range []string{strings.Repeat("x", 2*maxReason), strings.Repeat("é", maxReason), "x" + strings.Repeat("é", maxReason), "xx" + strings.Repeat("\U0001F600", maxReason), strings.Repeat("\xff", 2*maxReason)} {
		got := clip(s)
		if utf8.ValidString(s) != utf8.ValidString(got) || len(got) > maxReason || len(got) < maxReason-3 {
			t.Errorf("%.10q… is cut to %d bytes, text: %v", s, len(got), utf8.ValidString(got))
		}
	}
	if clip("short") != "short" {
		t.Error("a short text is changed")
	}
}

// TestDialsToDeafAgent checks that an agent that shows signs of life but reads nothing gets
// no more dials at some point, because the server could only queue them.
func TestDialsToDeafAgent(t *testing.T) {
	a, b := net.Pipe()
	l := New(b, 1<<20, Config{})
	done := make(chan error, 1)
	go func() { done <- l.Run() }()
	address := strings.Repeat("x", 1000)
	var err error
	n := 0
	for ; err == nil && n < 3*maxCtrl/len(address); n++ {
		_, err = l.Dial(address, sinktest.NewSink(nil, true), false)
	}
	if !errors.Is(err, tunnel.ErrNotReading) || n < maxCtrl/(headerLen+len(address)) {
		t.Errorf("after %d dials of %d bytes: %v", n, len(address), err)
	}
	a.Close()
	if err := <-done; err == nil {
		t.Error("the link has ended without a reason behind a lost connection")
	}
}
