// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
)

// read reads frames until the connection fails.
func (l *Link) read() error {
	defer l.came.pass()
	var h [headerLen]byte
	for {
		if n, err := io.ReadFull(l.nc, h[:]); err != nil {
			if n == 0 {
				return err
			}
			return l.cutOff(err)
		}
		length := int(h[1])<<16 | int(h[2])<<8 | int(h[3])
		id := binary.BigEndian.Uint32(h[4:])
		l.lastRecv.Store(int64(time.Since(l.start)))
		l.received.count(h[0])
		var err error
		if h[0] == typeData {
			err = l.readData(id, length)
		} else {
			l.came.pass()
			err = l.readControl(h[0], id, length)
		}
		if err != nil {
			return err
		}
	}
}

// readData reads the payload straight into the chunk that is handed on.
func (l *Link) readData(id uint32, length int) error {
	if length == 0 || length > maxData {
		return violation("DATA with %d bytes", length)
	}
	c := buffer.Get(length)
	if _, err := io.ReadFull(l.nc, c.Free()[:length]); err != nil {
		c.Release()
		return l.cutOff(err)
	}
	c.Extend(length)
	l.mu.Lock()
	st, err := l.streams[id], l.err
	if st == nil && err == nil {
		err = l.unknownLocked(id)
	}
	if st == nil || err != nil { // a link that has ended holds nothing
		l.mu.Unlock()
		c.Release()
		return err
	}
	st.allowed -= length
	st.unconsumed += length
	st.came += length
	l.held += length
	l.account.Add(length)
	broken := ""
	switch {
	case st.allowed < 0:
		broken = "data beyond the window"
	case st.state.remoteEnded():
		broken = "data behind the end"
	case st.state.dialing():
		broken = "data before the dial was answered"
	}
	l.mu.Unlock()
	if broken != "" {
		l.came.pass()
		c.Release()
		st.Consumed(length)
		l.breach(st, broken)
		return nil
	}
	l.account.Relieve()
	l.came.add(st, c)
	if l.bc == nil || length <= smallFrame || l.came.n >= maxRun {
		l.came.pass()
	}
	return nil
}

// maxRun is the number of bytes from which a run is passed on, whatever follows.
const maxRun = maxBatch

// run is what has come on one stream in a row and waits to be passed on together, as long
// as more is there that can be read without waiting: one large write to a socket wakes who
// reads it once. It belongs to the goroutine that reads the link.
type run struct {
	st     *Stream
	chunks []*buffer.Chunk
	n      int
}

func (r *run) add(st *Stream, c *buffer.Chunk) {
	if r.st != st {
		r.pass()
	}
	r.st = st
	r.chunks = append(r.chunks, c)
	r.n += c.Len()
}

func (r *run) pass() {
	if r.st == nil {
		return
	}
	r.st.r.Data(r.chunks...)
	clear(r.chunks)
	r.st, r.chunks, r.n = nil, r.chunks[:0], 0
}

// cutOff judges why a frame is not complete. A peer that is killed ends its TCP
// connection wherever it is, which is not its fault. One that says goodbye in TLS does
// so between frames: it wrote each of them whole.
func (l *Link) cutOff(err error) error {
	ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if ended && l.bc != nil && !l.bc.over {
		return violation("orderly end within a frame")
	}
	return err
}

// unknownLocked judges a frame for a stream that is not there: one that is over
// is a race, one that never was is a violation.
func (l *Link) unknownLocked(id uint32) error {
	if id == 0 || id > max(l.nextID, l.seenID) {
		return violation("frame for stream %d, which was never opened", id)
	}
	return nil
}

// breach resets a stream on which the peer broke a rule. The link goes on.
func (l *Link) breach(st *Stream, reason string) {
	l.broke(reason)
	st.Reset(reason, false)
	st.r.Aborted(violation("%s", reason))
}

// broke reports a rule that the peer broke.
func (l *Link) broke(rule string) {
	if l.cfg.OnViolation == nil {
		return
	}
	l.cfg.OnViolation(rule, l.first(rule))
}

// first reports whether the link has had nothing of a kind before.
func (l *Link) first(kind string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.had[kind] {
		return false
	}
	if l.had == nil {
		l.had = map[string]bool{}
	}
	l.had[kind] = true
	return true
}
