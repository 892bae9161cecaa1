// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestHeadersPadded: padding and a priority in a HEADERS frame are skipped, and the fields behind them are read.
func TestHeadersPadded(t *testing.T) {
	got := make(chan []Field, 10)
	p := newPeer(t, Config{OnStream: func(st *Stream, f []Field) {
		st.SetHandler(&handler{})
		got <- f
	}})
	priority := http2.PriorityParam{StreamDep: 7, Weight: 9}
	var plain []Field
	for i, param := range []http2.HeadersFrameParam{{}, {PadLength: 7}, {Priority: priority}, {PadLength: 255, Priority: priority}} {
		param.StreamID, param.BlockFragment, param.EndHeaders = uint32(2*i+1), requestBlock(), true
		if err := p.fr.WriteHeaders(param); err != nil {
			t.Fatal(err)
		}
		select {
		case f := <-got:
			if i == 0 {
				plain = f
			}
			if len(f) == 0 || !slices.Equal(f, plain) {
				t.Errorf("%+v gives %v, want %v", param, f, plain)
			}
		case err := <-p.ok:
			t.Fatalf("%+v ends the connection: %v", param, err)
		case <-time.After(time.Minute):
			t.Fatalf("%+v: no stream", param)
		}
	}
}

// TestHeadersRefused: malformed and oversized headers end the connection, with the code that RFC 9113 has for them.
func TestHeadersRefused(t *testing.T) {
	const headersFrame, continuationFrame, endHeaders, padded, priority = 1, 9, 4, 8, 0x20
	for name, c := range map[string]struct {
		write func(p *peer)
		code  uint32
	}{
		"no length of the padding": {func(p *peer) { _ = p.fr.WriteRawFrame(headersFrame, endHeaders|padded, 1, nil) }, CodeProtocol},
		"padding of one too many":  {func(p *peer) { _ = p.fr.WriteRawFrame(headersFrame, endHeaders|padded, 1, []byte{2, 0x82}) }, CodeProtocol},
		"short priority":           {func(p *peer) { _ = p.fr.WriteRawFrame(headersFrame, endHeaders|priority, 1, make([]byte, 4)) }, CodeFrameSize},
		"no stream":                {func(p *peer) { _ = p.fr.WriteRawFrame(headersFrame, endHeaders, 0, requestBlock()) }, CodeProtocol},
		"no HEADERS":               {func(p *peer) { _ = p.fr.WriteRawFrame(continuationFrame, endHeaders, 1, requestBlock()) }, CodeProtocol},
		"continuation of another stream": {func(p *peer) {
			_ = p.fr.WriteRawFrame(headersFrame, 0, 1, requestBlock())
			_ = p.fr.WriteRawFrame(continuationFrame, endHeaders, 3, requestBlock())
		}, CodeProtocol},
		"large block": {func(p *peer) {
			_ = p.fr.WriteRawFrame(headersFrame, 0, 1, nil)
			for range 5 { // 5 times 16 KiB
				_ = p.fr.WriteRawFrame(continuationFrame, 0, 1, make([]byte, 16384))
			}
		}, CodeEnhanceCalm},
		// A byte each for `:method: GET`, which count as 42 bytes.
		"large list": {func(p *peer) {
			_ = p.fr.WriteRawFrame(headersFrame, endHeaders, 1, bytes.Repeat([]byte{0x82}, 2000))
		}, CodeEnhanceCalm},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, Config{})
			p.fr.AllowIllegalWrites = true
			c.write(p)
			go func() { _, _ = io.Copy(io.Discard, p.nc) }()
			select {
			case err := <-p.ok:
				if ce := (*ConnError)(nil); !errors.As(err, &ce) || ce.Code != c.code {
					t.Errorf("the connection ended with %v, want code %d", err, c.code)
				}
			case <-time.After(time.Minute):
				t.Error("the connection goes on")
			}
		})
	}
}
