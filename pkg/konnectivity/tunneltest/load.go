// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Load is a steady stream of new connections.
type Load struct {
	stop chan struct{}
	wg   sync.WaitGroup

	mu     sync.Mutex
	dials  int
	errs   []error
	slowed time.Duration
}

// besideFaults is how many new connections per second show what other clients notice of a fault that is no matter of theirs.
const besideFaults = 10

// errDiffers says that an echo is not what was sent.
var errDiffers = errors.New("what came back differs")

// StartLoad dials an echo server so many times per second, whatever earlier dials
// do, and has each connection carry bytes of its own there and back.
func StartLoad(t testing.TB, d Dialer, addr string, perSecond int) *Load {
	t.Helper()
	l := &Load{stop: make(chan struct{})}
	l.wg.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for {
			select {
			case <-l.stop:
				return
			case <-tick.C:
				l.wg.Go(func() { l.one(d, addr) })
			}
		}
	})
	t.Cleanup(func() { l.Stop() })
	return l
}

func (l *Load) one(d Dialer, addr string) {
	start := time.Now()
	err := roundTrip(d, addr)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dials++
	l.slowed = max(l.slowed, time.Since(start))
	if err != nil {
		l.errs = append(l.errs, err)
	}
}

func roundTrip(d Dialer, addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	var c net.Conn
	c, err := d(ctx, addr)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer c.Close()
	sent, got := make([]byte, 4<<10), make([]byte, 4<<10)
	_, _ = rand.Read(sent)
	if _, err := c.Write(sent); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if _, err := readFull(c, got, Patience); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if !bytes.Equal(got, sent) {
		return errDiffers
	}
	return nil
}

// Dials is the number of dials that are over.
func (l *Load) Dials() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dials
}

// MoreDials waits until so many dials more are over.
func (l *Load) MoreDials(t testing.TB, n int) {
	t.Helper()
	want := l.Dials() + n
	Eventually(t, Patience, "more connections are made", func() bool { return l.Dials() >= want })
}

// Stop ends the load and returns how many dials there were, the longest time that
// one took with its bytes, and the errors of those that failed.
func (l *Load) Stop() (dials int, longest time.Duration, errs []error) {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.wg.Wait()
	return l.dials, l.slowed, l.errs
}

// Unavailable logs the longest time for which a client had to wait because of a fault, for the table of make chaos.
func Unavailable(t testing.TB, longest time.Duration) {
	t.Helper()
	t.Logf("unavailable for at most %v", max(longest.Round(time.Millisecond), time.Millisecond))
}

// NoDialFailed ends the load and fails the test if a dial failed or an echo differed. Connections may have
// broken: those that were made just before what carried them was cut.
func (l *Load) NoDialFailed(t testing.TB) {
	t.Helper()
	dials, longest, errs := l.Stop()
	Unavailable(t, longest)
	t.Logf("%d dials, %d connections broke", dials, len(errs))
	if len(errs) > dials/20+2 {
		t.Errorf("%d of %d connections broke", len(errs), dials)
	}
	for _, err := range errs {
		if strings.HasPrefix(err.Error(), "dial:") || errors.Is(err, errDiffers) {
			t.Errorf("in %d dials: %v", dials, err)
		}
	}
}

// NoneFailed ends the load and fails the test if a dial failed, or a connection broke or
// carried something else.
func (l *Load) NoneFailed(t testing.TB) {
	t.Helper()
	dials, longest, errs := l.Stop()
	Unavailable(t, longest)
	t.Logf("%d dials, %d failed", dials, len(errs))
	for i, err := range errs {
		if i == 5 {
			break
		}
		t.Errorf("one of %d failures in %d dials: %v", len(errs), dials, err)
	}
}
