// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestHeaderTable checks that a client may use a dynamic header table until it knows
// that the server wants none, and that the connection keeps none afterwards.
func TestHeaderTable(t *testing.T) {
	got := make(chan []Field, 10)
	p := newPeer(t, Config{OnStream: func(st *Stream, f []Field) {
		st.SetHandler(&handler{})
		got <- f
	}})
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	ask := func(id uint32) int {
		t.Helper()
		b.Reset()
		_ = enc.WriteField(hpack.HeaderField{Name: ":path", Value: "/a/path"})
		_ = enc.WriteField(hpack.HeaderField{Name: "token", Value: "secret"})
		n := b.Len()
		_ = p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b.Bytes(), EndHeaders: true})
		select {
		case f := <-got:
			if len(f) != 2 || f[0] != (Field{":path", "/a/path"}) || f[1] != (Field{"token", "secret"}) {
				t.Errorf("stream %d got %v", id, f)
			}
		case err := <-p.ok:
			t.Fatalf("stream %d: the connection ended with %v", id, err)
		case <-time.After(time.Minute):
			t.Fatalf("stream %d did not come", id)
		}
		return n
	}
	first := ask(1)
	if again := ask(3); again >= first {
		t.Fatalf("the client sent %d and %d bytes, which uses no table", first, again)
	}
	p.read(t, "SETTINGS", func(fr http2.Frame) bool {
		f, ok := fr.(*http2.SettingsFrame)
		if !ok || f.IsAck() {
			return false
		}
		if v, ok := f.Value(http2.SettingHeaderTableSize); !ok || v != 0 {
			t.Errorf("the server wants a table of %d bytes (%v)", v, ok)
		}
		return true
	})
	enc.SetMaxDynamicTableSizeLimit(0)
	_ = p.fr.WriteSettingsAck()
	if n := ask(5); n < first {
		t.Errorf("%d bytes: the client still uses the table", n)
	}
	ask(7)
	p.c.Close()
	t.Logf("the connection ended: %v", <-p.ok)
	if p.c.table.dec != nil {
		t.Error("the connection keeps a decoder")
	}
}

// TestSharedDecoder checks that an incomplete block that one client leaves in a
// decoder does not reach another client.
func TestSharedDecoder(t *testing.T) {
	table := headerTable{none: true}
	block := appendHeaders(nil, 1, []Field{{"name", "value"}}, false)[headerLen:]
	for cut := 1; cut < len(block); cut++ {
		if _, err := table.decode(block[:cut]); err == nil {
			t.Errorf("a block cut off after %d bytes was accepted", cut)
		}
		if f, err := table.decode(block); err != nil || len(f) != 1 || f[0] != (Field{"name", "value"}) {
			t.Fatalf("the block behind it became %v, %v", f, err)
		}
	}
	if _, err := table.decode([]byte{0x3f, 0xe1, 0x1f}); err == nil { // a table of 4096 bytes
		t.Error("a table was accepted")
	}
}
