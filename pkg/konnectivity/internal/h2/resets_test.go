// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestRapidReset: a client that opens streams and resets them is cut off, however few
// of them are open at a time; so is one that breaks a rule to have them reset.
func TestRapidReset(t *testing.T) {
	for name, waste := range map[string]func(p *peer, id uint32){
		"resets":   func(p *peer, id uint32) { _ = p.fr.WriteRSTStream(id, http2.ErrCodeCancel) },
		"breaches": func(p *peer, id uint32) { _ = p.fr.WriteWindowUpdate(id, 1<<31-1) },
	} {
		t.Run(name, func(t *testing.T) {
			begun := 0
			p := newPeer(t, Config{OnStream: func(*Stream, []Field) { begun++ }})
			go func() { _, _ = p.nc.Read(make([]byte, 1)) }()
			for id := uint32(1); id < 20*maxResets; id += 2 {
				p.request(id)
				waste(p, id)
			}
			wantCalm(t, p)
			// The budget that accrued while the frames arrived is far below maxResets.
			if begun > 2*maxResets {
				t.Errorf("%d streams were begun, want about %d", begun, maxResets)
			}
		})
	}
}

// wantCalm fails the test unless the connection ends with ENHANCE_YOUR_CALM.
func wantCalm(t *testing.T, p *peer) {
	t.Helper()
	select {
	case err := <-p.ok:
		var ce *ConnError
		if !errors.As(err, &ce) || ce.Code != CodeEnhanceCalm {
			t.Errorf("the connection ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the connection stays")
	}
}

// TestMayOpen: a peer that begins more streams than it may is cut off with the code that says why.
func TestMayOpen(t *testing.T) {
	const most = 3
	begun := 0
	p := newPeer(t, Config{MayOpen: func() bool { begun++; return begun <= most }})
	for i := range uint32(most) {
		p.request(2*i + 1)
	}
	wantAlive(t, p)
	p.request(2*most + 1)
	wantCalm(t, p)
}

// TestAnsweredResets: a client may reset as many streams as it likes that were
// answered; that is how dials of a shared connection may end.
func TestAnsweredResets(t *testing.T) {
	p := newPeer(t, Config{})
	for id := uint32(1); id < 6*maxResets; id += 2 {
		p.request(id)
		(<-p.st).SendControl([]byte("x"))
		_ = p.fr.WriteRSTStream(id, http2.ErrCodeCancel)
	}
	wantAlive(t, p)
}

// TestResetBudget: time gives back what was wasted, and not more.
func TestResetBudget(t *testing.T) {
	var b resetBudget
	now := time.Now()
	for range maxResets + 1 {
		b.waste(now)
	}
	if !b.spent() {
		t.Errorf("%d of %d are used, and none is too many", b.used, maxResets)
	}
	b.waste(now.Add(time.Hour))
	for range maxResets - 1 {
		b.waste(now.Add(time.Hour))
	}
	if b.spent() {
		t.Errorf("%d are used after an hour", b.used)
	}
	b.waste(now.Add(time.Hour))
	b.waste(now.Add(time.Hour))
	if !b.spent() {
		t.Error("an hour gives back more than all")
	}
}

// clumsy refuses the first data of each stream.
type clumsy struct{ handler }

func (*clumsy) Data([]byte) error { return errors.New("bad packet") }

// TestBadDataIsWaste: a client that has its streams reset with data that the handler
// refuses is cut off, as one is that resets them itself.
func TestBadDataIsWaste(t *testing.T) {
	p := newPeer(t, Config{OnStream: func(st *Stream, _ []Field) { st.SetHandler(&clumsy{}) }})
	go func() { _, _ = io.Copy(io.Discard, p.nc) }()
	for id := uint32(1); id < 20*maxResets; id += 2 {
		p.request(id)
		_ = p.fr.WriteData(id, false, []byte("x"))
	}
	wantCalm(t, p)
}

// wantAlive fails the test unless the connection answers.
func wantAlive(t *testing.T, p *peer) {
	t.Helper()
	_ = p.fr.WritePing(false, [8]byte{})
	p.read(t, "the answer to a ping", func(f http2.Frame) bool { _, ok := f.(*http2.PingFrame); return ok })
}

// TestResetsBehindTheEnd: a client resets what the server has ended, as grpc-go does, and
// that is not held against it, even if the answer was nothing but a status.
func TestResetsBehindTheEnd(t *testing.T) {
	p := newPeer(t, Config{})
	for id := uint32(1); id < 6*maxResets; id += 2 {
		p.request(id)
		select {
		case st := <-p.st:
			st.Finish([]Field{{"grpc-status", "14"}})
		case err := <-p.ok:
			t.Fatalf("the connection ended with %v", err)
		}
		_ = p.fr.WriteRSTStream(id, http2.ErrCodeNo)
	}
	wantAlive(t, p)
}

// TestImpatience: streams that wait for an answer may be given up together, however many
// they are, as dials are when all agents hang. Younger ones count.
func TestImpatience(t *testing.T) {
	for name, c := range map[string]struct {
		age  time.Duration
		want int
	}{"old": {patient, 0}, "young": {0, 3}} {
		t.Run(name, func(t *testing.T) {
			c1 := &Conn{streams: map[uint32]*Stream{}}
			for id := uint32(1); id < 6; id += 2 {
				st := c1.addStream(id)
				st.opened = time.Now().Add(-c.age)
				c1.resetLocked(st)
			}
			if c1.resets.used != c.want {
				t.Errorf("%d of 3 streams count as waste, want %d", c1.resets.used, c.want)
			}
		})
	}
}
