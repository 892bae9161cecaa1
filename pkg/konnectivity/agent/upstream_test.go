// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
)

// TestKeepaliveOfUpstream: an upstream server that says nothing is pinged about every
// --keepalive-time and never faster than every 30 s, for which it would cut the agent
// off; one that does not answer is given up.
func TestKeepaliveOfUpstream(t *testing.T) {
	for _, c := range []struct{ every, least, most time.Duration }{
		{time.Second, 30 * time.Second, 36 * time.Second},
		{30 * time.Second, 30 * time.Second, 36 * time.Second},
		{time.Minute, time.Minute, 66 * time.Second},
		{time.Hour, time.Hour, time.Hour + 6*time.Second},
	} {
		t.Run(fmt.Sprint(c.every), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pings, answer, over := pinged(t, c.every)
				last := time.Now()
				for range 4 {
					at := <-pings
					if d := at.Sub(last); d < c.least || d > c.most {
						t.Errorf("a ping after %v, want %v to %v", d, c.least, c.most)
					}
					last = at
					answer <- true
				}
				at := <-pings
				answer <- false
				<-over
				if d := time.Since(at); d < 20*time.Second || d > 26*time.Second {
					t.Errorf("given up after %v, want 20 s", d)
				}
			})
		})
	}
}

// pinged starts the keepalive of a connection. The times of its pings come from pings,
// and answer says whether each is to be answered. over is closed when the connection
// was given up.
func pinged(t *testing.T, every time.Duration) (pings chan time.Time, answer chan bool, over chan struct{}) {
	t.Helper()
	near, far := net.Pipe()
	a := New(Config{KeepaliveTime: every}, NewMetrics())
	c := &client{done: make(chan struct{}), h2: h2.NewClient(near, h2.Config{})}
	pings, answer, over = make(chan time.Time), make(chan bool), make(chan struct{})
	go func() { _ = c.h2.Serve() }()
	go func() { a.keepalive(c); close(over) }()
	go func() {
		defer func() { _ = far.Close() }()
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(far, preface); err != nil {
			t.Errorf("preface: %v", err)
		}
		fr := http2.NewFramer(far, far)
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				return
			}
			if p, ok := f.(*http2.PingFrame); ok && !p.IsAck() {
				pings <- time.Now()
				if <-answer {
					_ = fr.WritePing(true, p.Data)
				}
			}
		}
	}()
	return pings, answer, over
}

// TestUpstreamWelcome: a server says once who it is and how many there are, in numbers that
// can be.
func TestUpstreamWelcome(t *testing.T) {
	id, count := h2.Field{Name: "serverid", Value: "s"}, h2.Field{Name: "servercount", Value: "3"}
	for name, c := range map[string]struct {
		fields []h2.Field
		err    string // empty: it is taken
	}{
		"usual":          {[]h2.Field{{Name: ":status", Value: "200"}, id, count}, ""},
		"no ID":          {[]h2.Field{count}, "0 IDs and 1 counts"},
		"no count":       {[]h2.Field{id}, "1 IDs and 0 counts"},
		"two IDs":        {[]h2.Field{id, id, count}, "2 IDs"},
		"two counts":     {[]h2.Field{id, count, count}, "2 counts"},
		"empty ID":       {[]h2.Field{{Name: "serverid"}, count}, "empty ID"},
		"a word":         {[]h2.Field{id, {Name: "servercount", Value: "many"}}, "server count"},
		"below zero":     {[]h2.Field{id, {Name: "servercount", Value: "-1"}}, "server count"},
		"no such number": {[]h2.Field{id, {Name: "servercount", Value: "99999999999999999999"}}, "server count"},
		"refused":        {[]h2.Field{id, count, {Name: "grpc-message", Value: "who are you?"}}, "server refused the agent: who are you?"},
	} {
		t.Run(name, func(t *testing.T) {
			id, n, err := parseWelcome(c.fields)
			if c.err == "" {
				if err != nil || id != "s" || n != 3 {
					t.Errorf("%q, %d, %v", id, n, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q, %d, %v; want an error with %q", id, n, err, c.err)
			}
		})
	}
}
