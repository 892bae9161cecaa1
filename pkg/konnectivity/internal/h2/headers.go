// SPDX-License-Identifier: Apache-2.0

package h2

import "time"

// headerBlock collects a HEADERS frame and its continuations.
type headerBlock struct {
	stream uint32
	end    bool
	frag   []byte
}

func (c *Conn) headers(flags byte, id uint32, p []byte) error {
	if flags&flagPadded != 0 {
		if len(p) == 0 || int(p[0]) > len(p)-1 {
			return &ConnError{CodeProtocol, "bad padding"}
		}
		p = p[1 : len(p)-int(p[0])]
	}
	if flags&flagPriority != 0 {
		if len(p) < 5 {
			return &ConnError{CodeFrameSize, "HEADERS is too short"}
		}
		p = p[5:]
	}
	if id == 0 {
		return &ConnError{CodeProtocol, "HEADERS without a stream"}
	}
	c.parse.hblock = &headerBlock{stream: id, end: flags&flagEndStream != 0}
	return c.continuation(flags, id, p)
}

func (c *Conn) continuation(flags byte, id uint32, p []byte) error {
	hb := c.parse.hblock
	if hb == nil || hb.stream != id {
		return &ConnError{CodeProtocol, "CONTINUATION without HEADERS"}
	}
	if len(hb.frag)+len(p) > maxHeaderBlock {
		return &ConnError{CodeEnhanceCalm, "header block is larger than 64 KiB"}
	}
	hb.frag = append(hb.frag, p...)
	if flags&flagEndHeaders == 0 {
		return nil
	}
	c.parse.hblock = nil
	fields, err := c.table.decode(hb.frag)
	if err != nil {
		return err
	}
	return c.gotHeaders(hb, fields)
}

func (c *Conn) gotHeaders(hb *headerBlock, fields []Field) error {
	st := c.lookup(hb.stream)
	if st == nil && !c.client {
		return c.newPeerStream(hb, fields)
	}
	if st == nil {
		return nil
	}
	c.mu.Lock()
	late := st.recv != recvOpen
	c.mu.Unlock()
	if late {
		st.breach(CodeStreamClosed, "HEADERS behind the end of the stream")
		return nil
	}
	if st.h != nil {
		st.h.Headers(fields)
	}
	if hb.end {
		st.peerEnded()
	}
	return nil
}

func (c *Conn) newPeerStream(hb *headerBlock, fields []Field) error {
	if hb.stream%2 == 1 && hb.stream <= c.lastPeer && hb.end {
		return nil // trailers of a stream that was reset here meanwhile
	}
	if hb.stream%2 == 0 || hb.stream <= c.lastPeer {
		return &ConnError{CodeProtocol, "bad stream number"}
	}
	if c.cfg.MayOpen != nil && !c.cfg.MayOpen() {
		return &ConnError{CodeEnhanceCalm, "peer opens too many streams"}
	}
	c.mu.Lock()
	c.lastPeer = hb.stream
	if c.resets.spent() {
		c.mu.Unlock()
		return &ConnError{CodeEnhanceCalm, "peer resets, or ends without an answer, too many streams"}
	}
	if len(c.streams) >= c.cfg.MaxStreams || c.goingAway {
		c.ctrl = appendRST(c.ctrl, hb.stream, CodeRefused)
		c.mu.Unlock()
		return nil
	}
	st := c.addStream(hb.stream)
	st.opened = time.Now()
	c.mu.Unlock()
	c.cfg.OnStream(st, fields)
	if hb.end {
		st.peerEnded()
	}
	return nil
}
