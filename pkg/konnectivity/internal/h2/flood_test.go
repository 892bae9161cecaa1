// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// TestPingFlood: a peer that makes us answer without reading is cut off.
func TestPingFlood(t *testing.T) {
	p := newPeer(t, Config{})
	ping := appendFrameHeader(nil, 8, framePing, 0, 0)
	ping = append(ping, make([]byte, 8)...)
	flood := bytes.Repeat(ping, 10_000)
	_ = p.nc.SetWriteDeadline(time.Now().Add(time.Minute))
	for range 2000 {
		if _, err := p.nc.Write(flood); err != nil {
			return
		}
	}
	t.Error("340 MB of pings were answered into the void")
}

// TestAnswerFlood: so is one whose closed window makes the answers pile up.
func TestAnswerFlood(t *testing.T) {
	p := newPeer(t, Config{})
	p.request(1)
	st := <-p.st
	for range 100_000 {
		st.SendControl(make([]byte, 20))
	}
	_ = p.fr.WritePing(false, [8]byte{})
	select {
	case err := <-p.ok:
		var ce *ConnError
		if !errors.As(err, &ce) || ce.Code != CodeEnhanceCalm {
			t.Errorf("the connection ended with %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("100,000 answers wait for a window")
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.c.answers != 0 {
		t.Errorf("%d bytes of answers are left", p.c.answers)
	}
}
