package agent

import (
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/h2"
)

// TestKeepaliveOfReference: an upstream server that says nothing is pinged about every
// --keepalive-time and never faster than every 30 s, for which it would cut the agent
// off; one that does not answer is given up.
func TestKeepaliveOfReference(t *testing.T) {
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
