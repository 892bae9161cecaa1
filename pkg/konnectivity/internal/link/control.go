// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"io"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
)

func (l *Link) readControl(typ byte, id uint32, length int) error {
	if length > maxControl {
		return violation("frame of type %d with %d bytes", typ, length)
	}
	var small [64]byte
	p := small[:]
	if length > len(p) {
		p = make([]byte, length)
	}
	p = p[:length]
	if _, err := io.ReadFull(l.nc, p); err != nil {
		return l.cutOff(err)
	}
	switch typ {
	case typePing, typePong, typeDrain, typeDrained:
		if id != 0 {
			return violation("frame of type %d, which is the link's, for stream %d", typ, id)
		}
		return l.linkFrame(typ, p)
	case typeDial:
		return l.gotDial(id, p)
	case typeDialed, typeDialFail:
		if l.cfg.OnDial != nil {
			return violation("answer to a dial from a server")
		}
		return l.streamFrame(typ, id, p)
	case typeFin, typeClose, typeReset, typeCredit, typeBlocked:
		return l.streamFrame(typ, id, p)
	case typeHello, typeWelcome, typeRefuse:
		return violation("second handshake")
	}
	if l.cfg.OnUnknown != nil {
		l.cfg.OnUnknown(typ, l.first("unknown type"))
	}
	return nil // from a newer peer
}

func (l *Link) linkFrame(typ byte, p []byte) error {
	switch typ {
	case typePing:
		if len(p) != 8 {
			return violation("PING with %d bytes", len(p))
		}
		l.pong(p)
	case typePong:
		if len(p) != 8 {
			return violation("PONG with %d bytes", len(p))
		}
		l.gotPong(p)
	case typeDrain:
		if l.cfg.OnDrain != nil {
			l.cfg.OnDrain()
		}
	case typeDrained:
		if l.cfg.OnDial == nil {
			return violation("DRAINED from an agent")
		}
		if l.cfg.OnDrained != nil {
			l.cfg.OnDrained()
		}
	}
	return nil
}

// maxCtrl is the number of bytes of unsent control frames at which the link no longer
// answers pings: the peer does not read.
const maxCtrl = 1 << 20

// floodLimit is the same limit for answers to dials, which cannot be skipped.
const floodLimit = 4 * maxCtrl

func (l *Link) pong(p []byte) {
	l.mu.Lock()
	if len(l.ctrl) < maxCtrl {
		l.controlLocked(typePong, 0, string(p))
		l.kickLocked()
	}
	l.mu.Unlock()
}

// enoughRTTs is how many round trips are measured even if there is traffic: the first one
// may have been slow.
const enoughRTTs = 4

// gotPong measures the round trip if the PONG answers the open ping.
func (l *Link) gotPong(p []byte) {
	sent := int64(binary.BigEndian.Uint64(p))
	if sent == 0 || !l.pinged.CompareAndSwap(sent, 0) {
		return
	}
	rtt := max(1, int64(time.Since(l.start))-sent)
	l.measured.Add(1)
	if m := l.minRTT.Load(); m == 0 || rtt < m {
		l.minRTT.Store(rtt) // only this goroutine stores it
	}
}

// Drained answers DRAIN: the server sends no further dial. The server calls it when it no
// longer chooses this link.
func (l *Link) Drained() { l.control(typeDrained, "") }

func (l *Link) gotDial(id uint32, p []byte) error {
	if l.cfg.OnDial == nil {
		return violation("DIAL from an agent")
	}
	l.mu.Lock()
	if id == 0 || id <= l.seenID {
		l.mu.Unlock()
		return violation("DIAL with used number %d", id)
	}
	if len(l.ctrl) > floodLimit {
		l.mu.Unlock()
		return violation("server does not read the answers to its dials")
	}
	l.seenID = id
	st := l.newStream(id, nil)
	st.state = stateDialing
	l.mu.Unlock()
	l.cfg.OnDial(st, string(p))
	l.mu.Lock()
	gone, r := l.err != nil, st.r
	l.mu.Unlock()
	if gone && r != nil { // the link may have ended before the receiver was set
		r.Aborted(tunnel.ErrLinkClosed)
	}
	return nil
}

// Accept accepts a dial; agent side only. The receiver must have been set. It may wait for
// the network.
func (st *Stream) Accept() {
	st.l.mu.Lock()
	if st.state != stateClosed {
		st.answeredLocked()
		st.l.controlLocked(typeDialed, st.id, "")
	}
	own := st.l.flushLocked(true)
	st.l.mu.Unlock()
	st.l.send(own, true)
}

// Refuse answers a dial that failed; agent side only.
func (st *Stream) Refuse(e *tunnel.DialError) {
	st.l.mu.Lock()
	defer st.l.mu.Unlock()
	if st.state != stateClosed {
		st.l.controlLocked(typeDialFail, st.id, string([]byte{byte(e.Code)})+clip(e.Message))
		st.killLocked()
		st.l.kickLocked()
	}
}

func (l *Link) streamFrame(typ byte, id uint32, p []byte) error {
	l.mu.Lock()
	st := l.streams[id]
	if st == nil {
		err := l.unknownLocked(id)
		l.mu.Unlock()
		return err
	}
	early := st.state.dialing() && (typ == typeFin || typ == typeClose || typ == typeCredit || typ == typeBlocked)
	l.mu.Unlock()
	if early { // its receiver has no stream yet
		l.breach(st, "end, credit or its lack before the dial was answered")
		return nil
	}
	switch typ {
	case typeDialed:
		return st.gotDialed()
	case typeDialFail:
		return st.gotDialFail(p)
	case typeFin, typeClose:
		st.gotFin(typ == typeClose)
	case typeReset:
		st.abort(&tunnel.ResetError{Reason: text(p)})
	case typeCredit:
		if len(p) != 4 {
			return violation("CREDIT with %d bytes", len(p))
		}
		st.gotCredit(binary.BigEndian.Uint32(p))
	case typeBlocked:
		st.gotBlocked()
	}
	return nil
}

// gotDialed and gotDialFail drop an answer to a dial that another goroutine has canceled since
// streamFrame found the stream: the peer did nothing wrong.
func (st *Stream) gotDialed() error {
	st.l.mu.Lock()
	ok, canceled := st.state.dialing(), st.state == stateClosed
	st.answeredLocked()
	st.l.mu.Unlock()
	if canceled {
		return nil
	}
	if !ok {
		return violation("DIALED for a stream that is not being dialed")
	}
	st.r.Dialed(st, nil)
	return nil
}

func (st *Stream) gotDialFail(p []byte) error {
	st.l.mu.Lock()
	ok, canceled := st.state.dialing() && len(p) > 0, st.state == stateClosed && len(p) > 0
	if ok {
		st.killLocked()
	}
	st.l.mu.Unlock()
	if canceled {
		return nil
	}
	if !ok { // the stream ends with the link
		return violation("DIALFAIL without a reason, or for a stream that is not being dialed")
	}
	st.r.Dialed(nil, &tunnel.DialError{Code: tunnel.Code(p[0]), Message: text(p[1:])})
	return nil
}

func (st *Stream) gotFin(closed bool) {
	l := st.l
	l.mu.Lock()
	if st.state == stateClosed {
		l.mu.Unlock()
		return
	}
	first := !st.state.remoteEnded()
	again := st.state == statePeerClosed || !first && !closed
	st.shutLocked()
	if !again {
		st.remoteEndedLocked(closed)
	}
	r := st.r
	l.mu.Unlock()
	if again {
		l.broke("end is sent twice")
	}
	if r == nil || again {
		return
	}
	if first {
		r.End()
	}
	if closed {
		st.peerReadsNoMore(r)
	}
}

// peerReadsNoMore closes the sending direction, because the peer no longer reads.
func (st *Stream) peerReadsNoMore(r tunnel.Receiver) {
	if s, ok := r.(interface{ PeerClosed() }); ok {
		s.PeerClosed()
	}
	l := st.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if st.state == stateClosed {
		return
	}
	buffer.Release(st.queue)
	st.queue, st.queued = nil, 0
	if st.end == endNone {
		st.end = endFin
	}
	if !st.state.localEnded() {
		l.schedule(st)
		l.kickLocked()
	}
}
