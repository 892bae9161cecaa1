// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"encoding/binary"
	"io"
	"testing"

	"golang.org/x/net/http2"
)

// crowd returns a connection with streams that wait for the windows of their own.
func crowd(tb testing.TB) *Conn {
	tb.Helper()
	c := &Conn{streams: map[uint32]*Stream{}, sendWin: initialWindow, peerWin: 0}
	c.cfg.defaults()
	for id := uint32(1); id < 1800; id += 2 {
		st := c.addStream(id)
		st.queue = append(st.queue, &message{head: []byte("x")})
	}
	return c
}

var oneByte = binary.BigEndian.AppendUint32(nil, 1)

// TestConnWindowVisitsNoStream: an update of a connection's window has no stream try to
// send that waits for its own window, whether the connection's was open or shut.
func TestConnWindowVisitsNoStream(t *testing.T) {
	c := crowd(t)
	if err := c.windowUpdate(0, oneByte); err != nil {
		t.Fatal(err)
	}
	if n := len(c.pump); n != 0 {
		t.Errorf("%d streams try to send after an update of a window that was open", n)
	}
	c.sendWin = 0
	if err := c.windowUpdate(0, oneByte); err != nil {
		t.Fatal(err)
	}
	if n := len(c.pump); n != 0 {
		t.Errorf("%d of %d streams try to send after an update of a window that was shut", n, len(c.streams))
	}
}

// TestSettingsMoveOnce: a frame of SETTINGS moves the windows of all streams once at most,
// to what its last entry says.
func TestSettingsMoveOnce(t *testing.T) {
	c := crowd(t)
	c.ackTimer = nil
	var entries []byte
	for i := range uint32(2700) {
		entries = binary.BigEndian.AppendUint16(entries, settingWindow)
		entries = binary.BigEndian.AppendUint32(entries, i%2+7)
	}
	if err := c.settings(0, 0, entries); err != nil {
		t.Fatal(err)
	}
	c.ackTimer.Stop()
	if c.moves.used != 1 {
		t.Errorf("the windows were moved %d times", c.moves.used)
	}
	if c.peerWin != 8 || c.streams[1].sendWin != 8 {
		t.Errorf("the window is %d, a stream's %d, want 8", c.peerWin, c.streams[1].sendWin)
	}
}

// TestSettingsFlood: a peer that changes the window again and again while streams are
// open is cut off. One that does so some dozens of times is not, nor is one whose SETTINGS
// change nothing.
func TestSettingsFlood(t *testing.T) {
	p := newPeer(t, Config{})
	p.request(1)
	<-p.st
	change := func(n uint32, of uint32) {
		for i := range n {
			_ = p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 70_000 + i%of})
		}
	}
	change(50, 2)
	change(2000, 1)
	wantAlive(t, p)
	go func() { _, _ = io.Copy(io.Discard, p.nc) }()
	change(20*maxResets, 2)
	wantCalm(t, p)
}

// BenchmarkConnWindow: updates of the connection's window next to 900 streams that wait.
func BenchmarkConnWindow(b *testing.B) {
	c := crowd(b)
	for b.Loop() {
		c.sendWin = 1
		if err := c.windowUpdate(0, oneByte); err != nil {
			b.Fatal(err)
		}
		for _, st := range c.pump { // as a round does that can send nothing
			st.list = listNone
		}
		c.pump = c.pump[:0]
	}
}

// BenchmarkSettings: the largest frame of SETTINGS next to 900 streams that wait.
func BenchmarkSettings(b *testing.B) {
	c := crowd(b)
	var entries []byte
	for i := range uint32(2700) {
		entries = binary.BigEndian.AppendUint16(entries, settingWindow)
		entries = binary.BigEndian.AppendUint32(entries, i%2)
	}
	last := entries[len(entries)-1:]
	for b.Loop() {
		last[0] ^= 1 // so that each frame changes the window
		c.moves, c.acks = resetBudget{}, c.acks[:0]
		if err := c.settings(0, 0, entries); err != nil {
			b.Fatal(err)
		}
		c.ackTimer.Stop()
		for _, st := range c.pump {
			st.list = listNone
		}
		c.pump = c.pump[:0]
	}
}
