// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	download byte = iota // the destination sends
	upload               // the client sends
)

const (
	clients      = 6
	transferSize = 512 << 10
	// transferBound is for a transfer to end, whole or not, whatever happens to what
	// carries it: a frozen process is given up within 20 s.
	transferBound = Patience
)

// Traffic is transfers in both directions, one after the other by each of some
// clients, while something is done to what carries them. What both ends say of each
// transfer has to be true: one that ended in an orderly way was whole.
type Traffic struct {
	// Down says that dials may fail at present.
	Down atomic.Bool
	// AgentKilled says that a destination may see an end in place of a reset: the
	// kernel closes what a killed agent had open.
	AgentKilled atomic.Bool
	// Open is the number of connections at the destination.
	Open atomic.Int64

	t    testing.TB
	dial Dialer
	addr string
	wrap *tls.Config
	stop chan struct{}
	wg   sync.WaitGroup

	mu      sync.Mutex
	wholes  [2]int // downloads and uploads
	cuts    [2]int
	gate    chan struct{} // where transfers wait in Midway; nil otherwise
	waiting int           // transfers at the gate
}

// StartTraffic starts transfers and returns when transfers in both directions have
// completed. With wrap, the transfers use TLS inside the tunnel, for clients that
// cannot detect otherwise that a connection was cut.
func StartTraffic(t testing.TB, dial Dialer, wrap *tls.Config) *Traffic {
	t.Helper()
	tr := &Traffic{t: t, dial: dial, wrap: wrap, stop: make(chan struct{})}
	tr.addr = Target(t, tr.serve)
	for i := range clients {
		tr.wg.Go(func() { tr.client(byte(i % 2)) })
	}
	t.Cleanup(tr.End)
	tr.Progress()
	return tr
}

// Progress waits until a transfer in each direction was whole that began after the
// call.
func (tr *Traffic) Progress() {
	tr.t.Helper()
	before := tr.whole()
	Eventually(tr.t, 2*transferBound, "transfers are whole again", func() bool {
		is := tr.whole()
		// As many as there are clients for each may have begun before.
		return is[download] > before[download]+clients/2 && is[upload] > before[upload]+clients/2
	})
}

func (tr *Traffic) whole() [2]int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.wholes
}

// Cut is how many transfers broke.
func (tr *Traffic) Cut() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.cuts[download] + tr.cuts[upload]
}

// Midway calls do while each client is in the middle of a transfer, which goes on afterward. A fault in do that ends
// the connections of all clients therefore breaks one transfer of each.
func (tr *Traffic) Midway(do func()) {
	tr.t.Helper()
	gate := make(chan struct{})
	tr.mu.Lock()
	tr.gate, tr.waiting = gate, 0
	tr.mu.Unlock()
	defer func() {
		tr.mu.Lock()
		tr.gate = nil
		tr.mu.Unlock()
		close(gate)
	}()
	Eventually(tr.t, 2*transferBound, "all clients are in the middle of a transfer", func() bool {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return tr.waiting >= clients
	})
	do()
}

// passGate waits in Midway.
func (tr *Traffic) passGate() {
	tr.mu.Lock()
	gate := tr.gate
	if gate != nil {
		tr.waiting++
	}
	tr.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

// End stops and waits until nothing is under way.
func (tr *Traffic) End() {
	select {
	case <-tr.stop:
		return
	default:
		close(tr.stop)
	}
	tr.wg.Wait() // each transfer has its bound
	tr.t.Logf("downloads and uploads: %v whole, %v cut", tr.wholes, tr.cuts)
}

// NoneCut is End, and fails the test if a transfer broke.
func (tr *Traffic) NoneCut() {
	tr.t.Helper()
	tr.End()
	if n := tr.Cut(); n > 0 {
		tr.t.Errorf("%d transfers were cut", n)
	}
}

func (tr *Traffic) client(kind byte) {
	for seed := byte(0); ; seed++ {
		select {
		case <-tr.stop:
			return
		default:
		}
		allowed := tr.Down.Load()
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		c, err := tr.dial(ctx, tr.addr)
		cancel()
		if err != nil {
			if !allowed && !tr.Down.Load() {
				tr.t.Errorf("dial: %v", err)
			}
			time.Sleep(20 * time.Millisecond)
			continue
		}
		err = tr.transfer(c, kind, seed)
		tr.mu.Lock()
		if err == nil {
			tr.wholes[kind]++
		} else {
			tr.cuts[kind]++
		}
		tr.mu.Unlock()
	}
}

// Once dials and makes a transfer.
func (tr *Traffic) Once(ctx context.Context) error {
	c, err := tr.dial(ctx, tr.addr)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	return tr.transfer(c, download, 0)
}

// transfer makes one and returns nil if it was whole.
func (tr *Traffic) transfer(c net.Conn, kind, seed byte) error {
	late := time.AfterFunc(transferBound, func() {
		tr.t.Errorf("a transfer has not ended after %v", transferBound)
		_ = c.Close()
	})
	defer late.Stop()
	defer c.Close()
	if tr.wrap != nil {
		c = strictly(c, tr.wrap, tls.Client)
		defer c.Close()
	}
	if _, err := c.Write([]byte{kind, seed}); err != nil {
		return err
	}
	want := randomBytes(seed, transferSize)
	if kind == upload {
		if err := tr.trickle(c, want); err != nil {
			return err
		}
		sum := sha256.Sum256(want)
		want = sum[:]
	}
	got, err := io.ReadAll(c)
	return tr.judge("client", got, want, err)
}

// judge wants what came to be right as far as it came, and all of it if it ended in an
// orderly way.
func (tr *Traffic) judge(who string, got, want []byte, err error) error {
	if len(got) > len(want) || !bytes.Equal(got, want[:len(got)]) {
		tr.t.Errorf("%s: %d bytes came that are not those that were sent, %v", who, len(got), err)
	}
	if err != nil && strings.Contains(err.Error(), "error: tls:") {
		tr.t.Errorf("%s: inside, after %d bytes: %v", who, len(got), err)
	}
	if err == nil && len(got) < len(want) {
		err = fmt.Errorf("%d of %d bytes came, and then an end as if that were all", len(got), len(want))
		if who == "client" || tr.wrap != nil || !tr.AgentKilled.Load() {
			tr.t.Errorf("%s: %v", who, err)
		}
	}
	return err
}

// serve is the destination.
func (tr *Traffic) serve(c net.Conn) {
	tr.Open.Add(1)
	defer tr.Open.Add(-1)
	if tr.wrap != nil {
		c = strictly(c, tr.wrap, tls.Server)
		defer c.Close()
	}
	head := make([]byte, 2)
	if _, err := io.ReadFull(c, head); err != nil {
		return
	}
	body := randomBytes(head[1], transferSize)
	if head[0] == download {
		_ = tr.trickle(c, body)
		return
	}
	got, err := io.ReadAll(io.LimitReader(c, transferSize))
	if tr.judge("destination", got, body, err) == nil {
		sum := sha256.Sum256(got)
		_, _ = c.Write(sum[:])
	}
}

// randomBytes returns bytes that the seed determines.
func randomBytes(seed byte, size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// trickle writes so slowly that something can happen meanwhile.
func (tr *Traffic) trickle(c net.Conn, b []byte) error {
	for len(b) > 0 {
		tr.passGate()
		n, err := c.Write(b[:min(len(b), transferSize/32)])
		if err != nil {
			return err
		}
		b = b[n:]
		time.Sleep(5 * time.Millisecond) // the pace of the transfer
	}
	return nil
}
