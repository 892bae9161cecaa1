// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// thorough returns n where all tests run, and the smaller brief in `make test` and with -short.
func thorough(n, brief int) int {
	if testing.Short() || testutil.Main() {
		return brief
	}
	return n
}

// integrity sends random bytes through several connections in both directions at
// once, in writes of all sizes.
func integrity(t *testing.T, p Pair) {
	addr := Target(t, Echo)
	var wg sync.WaitGroup
	for i := range 6 {
		c := MustDial(t, p.Dial, addr)
		wg.Go(func() { echoes(t, c, uint64(i), thorough(4<<20, 1<<20)) })
	}
	wg.Wait()
}

func echoes(t *testing.T, c net.Conn, seed uint64, size int) {
	data := make([]byte, size)
	rng := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = rng.Read(data)
	sizes := rand.New(rand.NewPCG(seed, 1))
	go func() {
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 1+sizes.IntN(1<<(1+sizes.IntN(18))))
			if _, err := c.Write(rest[:n]); err != nil {
				t.Errorf("write: %v", err)
				return
			}
			rest = rest[n:]
		}
	}()
	got := make([]byte, size)
	if n, err := io.ReadFull(c, got); err != nil {
		t.Errorf("read %d of %d bytes: %v", n, size, err)
		return
	}
	if sha256.Sum256(got) != sha256.Sum256(data) {
		t.Error("what came back differs")
	}
}

// smallWrites sends so many packets that whatever a window loses with each of
// them adds up to more than the window.
func smallWrites(t *testing.T, p Pair) {
	addr := Target(t, Echo)
	c := MustDial(t, p.Dial, addr)
	const n, size = 40_000, 20
	go func() {
		b := make([]byte, size)
		for range n {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}()
	if got, err := readFull(c, make([]byte, n*size), Patience); err != nil {
		t.Fatalf("after %d bytes: %v", got, err)
	}
}

// speaksFirst checks that nothing overtakes the answer to the dial, or not always
// where that is the best that can be had.
func speaksFirst(t *testing.T, p Pair) {
	const hello = "220 ready\r\n"
	addr := Target(t, func(c net.Conn) { _, _ = c.Write([]byte(hello)); _, _ = io.Copy(io.Discard, c) })
	limit := Patience
	if p.Overtakes {
		limit = 2 * time.Second // what was dropped does not come
	}
	spoilt := 0
	for range 30 {
		c, err := p.Dial(t.Context(), addr)
		if err != nil && !p.Overtakes {
			t.Fatalf("dial: %v", err)
		}
		if err != nil {
			spoilt++
			continue
		}
		got := make([]byte, len(hello))
		_, err = readFull(c, got, limit)
		c.Close()
		switch {
		case err == nil && string(got) == hello:
		case err != nil && p.Overtakes:
			spoilt++
		default:
			t.Fatalf("got %q, %v", got, err)
		}
	}
	if spoilt > 15 {
		t.Errorf("%d of 30 connections were spoilt", spoilt)
	}
}

// targetCloses checks that all bytes come before the end, also to a client that reads
// late.
func targetCloses(t *testing.T, p Pair) {
	const size = 1 << 20
	data := randomBytes(1, size)
	addr := Target(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		_, _ = c.Write(data)
	})
	for i := range 6 {
		c := MustDial(t, p.Dial, addr)
		_, _ = c.Write([]byte{1})
		if i%2 == 1 {
			time.Sleep(50 * time.Millisecond) // the client reads late
		}
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("got %d of %d bytes, %v", len(got), size, err)
		}
		c.Close()
	}
}

// writeThenClose checks that what a client writes right before its close arrives, each
// client's bytes and no others.
func writeThenClose(t *testing.T, p Pair) {
	const n, size = 20, 1 << 20
	got := make(chan []byte, n)
	addr := Target(t, func(c net.Conn) {
		_ = c.(*net.TCPConn).SetReadBuffer(64 << 10) // so that the agent has to hold bytes
		time.Sleep(50 * time.Millisecond)            // slower than the writer
		b, _ := io.ReadAll(c)
		got <- b
	})
	missing := map[[sha256.Size]byte]bool{}
	for i := range n {
		data := randomBytes(byte(i), size)
		missing[sha256.Sum256(data)] = true
		c := MustDial(t, p.Dial, addr)
		if _, err := c.Write(data); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	lost := 0
	for range n {
		select {
		case b := <-got:
			sum := sha256.Sum256(b)
			if !missing[sum] {
				lost++
				t.Logf("%d bytes arrived that are not the %d of a client", len(b), size)
			}
			delete(missing, sum)
		case <-time.After(Patience):
			t.Fatal("a target never saw the end")
		}
	}
	if lost > p.MayLose {
		t.Errorf("%d of %d transfers arrived broken, %d may", lost, n, p.MayLose)
	}
}

func halfClose(t *testing.T, p Pair) {
	addr := Target(t, func(c net.Conn) {
		sum := sha256.New()
		_, _ = io.Copy(sum, c)
		time.Sleep(50 * time.Millisecond) // the end has passed the tunnel before the answer comes
		_, _ = c.Write(sum.Sum(nil))
	})
	c := MustDial(t, p.Dial, addr)
	data := bytes.Repeat([]byte{3}, 300_000)
	if _, err := c.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if want := sha256.Sum256(data); err != nil || !bytes.Equal(got, want[:]) {
		t.Errorf("got %x, %v, want %x", got, err, want)
	}
}
