package konntest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Pair is what the suite runs against.
type Pair struct {
	Dial Dialer
	// Lossless: write-then-close loses nothing. Upstream's agent and any pair
	// with it cannot promise that.
	Lossless bool
	// SlowClients and SlowTargets: a connection whose client, or whose target,
	// does not read does not stop others. Upstream's server cannot do the first,
	// its agent not the second.
	SlowClients, SlowTargets bool
	// HalfClose: the end of one direction is passed on alone.
	HalfClose bool
	// Overtakes: the first bytes of a destination that speaks first may come along
	// with the answer to the dial, which spoils the connection. Upstream's server
	// does that when it is busy.
	Overtakes bool
	// Failure is what the error of a refused dial has to contain.
	Failure string
}

// Run runs the suite.
func Run(t *testing.T, p Pair) {
	t.Run("integrity", func(t *testing.T) { integrity(t, p) })
	t.Run("small writes", func(t *testing.T) { smallWrites(t, p) })
	t.Run("target speaks first", func(t *testing.T) { speaksFirst(t, p) })
	t.Run("target closes", func(t *testing.T) { targetCloses(t, p) })
	t.Run("refused dial", func(t *testing.T) { refusedDial(t, p) })
	if p.Lossless {
		t.Run("write then close", func(t *testing.T) { writeThenClose(t, p) })
	}
	if p.HalfClose {
		t.Run("half-close", func(t *testing.T) { halfClose(t, p) })
	}
	if p.SlowClients {
		t.Run("isolation (upstream #180), clients do not read", func(t *testing.T) { isolation(t, p, stallClient) })
	}
	if p.SlowTargets {
		t.Run("isolation (upstream #180), targets do not read", func(t *testing.T) { isolation(t, p, stallTarget) })
	}
	t.Run("churn", func(t *testing.T) { churn(t, p) })
}

// Target serves each connection with f and returns the address.
func Target(t testing.TB, f func(c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				time.Sleep(time.Millisecond)
				continue
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			wg.Go(func() {
				f(c)
				c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

// Echo is a target that sends back what it gets.
func Echo(c net.Conn) { _, _ = io.Copy(c, c) }

// MustDial dials or ends the test.
func MustDial(t testing.TB, d Dialer, addr string) net.Conn {
	t.Helper()
	c, err := d(context.Background(), addr)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// integrity sends random bytes through several connections in both directions at
// once, in writes of all sizes.
func integrity(t *testing.T, p Pair) {
	addr := Target(t, Echo)
	var wg sync.WaitGroup
	for i := range 6 {
		c := MustDial(t, p.Dial, addr)
		wg.Go(func() { echoes(t, c, uint64(i), 4<<20) })
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

// readFull reads with a limit, because tunnelled connections have no deadlines.
func readFull(c net.Conn, b []byte, limit time.Duration) (int, error) {
	type result struct {
		n   int
		err error
	}
	ch := make(chan result, 1)
	go func() { n, err := io.ReadFull(c, b); ch <- result{n, err} }()
	select {
	case r := <-ch:
		return r.n, r.err
	case <-time.After(limit):
		c.Close()
		return 0, errors.New("nothing came in time")
	}
}

// targetCloses checks that all bytes come before the end.
func targetCloses(t *testing.T, p Pair) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	addr := Target(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		_, _ = c.Write(data)
	})
	for range 5 {
		c := MustDial(t, p.Dial, addr)
		_, _ = c.Write([]byte{1})
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("got %d of %d bytes, %v", len(got), len(data), err)
		}
		c.Close()
	}
}

func refusedDial(t *testing.T, p Pair) {
	c, err := p.Dial(context.Background(), "127.0.0.1:1") // nobody is given this port by chance
	if err == nil {
		c.Close()
		t.Fatal("dial to a closed port succeeded")
	}
	if !strings.Contains(err.Error(), p.Failure) {
		t.Errorf("error %q, want %q", err, p.Failure)
	}
}

func writeThenClose(t *testing.T, p Pair) {
	got := make(chan int64, 100)
	addr := Target(t, func(c net.Conn) {
		time.Sleep(20 * time.Millisecond) // slower than the writer
		n, _ := io.Copy(io.Discard, c)
		got <- n
	})
	const size = 1 << 20
	data := make([]byte, size)
	for range 20 {
		c := MustDial(t, p.Dial, addr)
		if _, err := c.Write(data); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	for i := range 20 {
		select {
		case n := <-got:
			if n != size {
				t.Errorf("transfer %d: %d of %d bytes arrived", i, n, size)
			}
		case <-time.After(Patience):
			t.Fatal("a target never saw the end")
		}
	}
}

func halfClose(t *testing.T, p Pair) {
	addr := Target(t, func(c net.Conn) {
		sum := sha256.New()
		_, _ = io.Copy(sum, c)
		time.Sleep(50 * time.Millisecond)
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

// mustDialLeave is MustDial for connections that stand still: the client of GRPC
// takes 10 s to close such a one, for which nobody has to wait.
func mustDialLeave(t *testing.T, d Dialer, addr string) net.Conn {
	t.Helper()
	c, err := d(context.Background(), addr)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { leaving.Go(func() { _ = c.Close() }) })
	return c
}

// leaving are connections that are being closed.
var leaving sync.WaitGroup

// stallClient has a target send to a client that does not read.
func stallClient(t *testing.T, p Pair) {
	source := Target(t, endless)
	for range 10 {
		c := mustDialLeave(t, p.Dial, source)
		_, _ = c.Write([]byte{1})
	}
}

// endless sends after the first byte from the other side until it cannot any more.
func endless(c net.Conn) {
	_, _ = io.ReadFull(c, make([]byte, 1))
	for b := make([]byte, 64<<10); ; {
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

// stallTarget has clients send to a target that does not read.
func stallTarget(t *testing.T, p Pair) {
	stuck := make(chan struct{})
	sink := Target(t, func(net.Conn) { <-stuck })
	t.Cleanup(func() { close(stuck) })
	for range 10 {
		s := mustDialLeave(t, p.Dial, sink)
		go func() {
			for b := make([]byte, 64<<10); ; {
				if _, err := s.Write(b); err != nil {
					return
				}
			}
		}()
	}
}

// isolation checks that connections which stand still harm no other.
func isolation(t *testing.T, p Pair, stall func(*testing.T, Pair)) {
	echo := Target(t, Echo)
	stall(t, p)
	time.Sleep(500 * time.Millisecond)
	for range 5 {
		c := MustDial(t, p.Dial, echo)
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 5)
		if _, err := readFull(c, b, Patience); err != nil {
			t.Fatalf("healthy connection: %v", err)
		}
		c.Close()
	}
}

// churn opens and closes many connections and checks that no goroutines stay.
func churn(t *testing.T, p Pair) {
	addr := Target(t, Echo)
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 50 {
				ctx, cancel := context.WithTimeout(context.Background(), Patience)
				c, err := p.Dial(ctx, addr)
				cancel()
				if err != nil {
					t.Errorf("dial: %v", err)
					return
				}
				if i%2 == 0 {
					_, _ = c.Write([]byte{1})
					_, _ = readFull(c, make([]byte, 1), Patience)
				}
				c.Close()
			}
		})
	}
	wg.Wait()
	Eventually(t, Patience, "goroutines are gone", func() bool { return runtime.NumGoroutine() <= before+5 })
}
