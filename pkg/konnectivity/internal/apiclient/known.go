// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"sync"
	"time"
)

const (
	// knownFor is how long a host is known after one of its tokens was accepted: longer
	// than a projected token lasts.
	knownFor = 6 * time.Hour
	// maxKnown limits the number of known hosts.
	maxKnown = 100_000
)

// known are the hosts whose tokens were accepted before. Their requests enter the common
// queue at once. All other hosts share one place in that queue, so that a thousand of them
// with wrong tokens keep no agent of a known host out.
type known struct {
	mu    sync.Mutex
	until map[netip.Prefix]time.Time
}

func (k *known) add(peer string) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.until == nil {
		k.until = map[netip.Prefix]time.Time{}
	}
	if len(k.until) >= maxKnown {
		maps.DeleteFunc(k.until, func(_ netip.Prefix, until time.Time) bool { return now.After(until) })
		if len(k.until) >= maxKnown {
			return
		}
	}
	k.until[hostOf(peer)] = now.Add(knownFor)
}

func (k *known) has(peer string) bool {
	if peer == reviewsPeer {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Now().Before(k.until[hostOf(peer)])
}

// enterStrangers waits for the one place of the unknown hosts, in order. The error is
// ErrBusy if the deadline passes first.
func (c *Client) enterStrangers(ctx context.Context) (leave func(), err error) {
	select {
	case c.strangers <- struct{}{}:
		return func() { <-c.strangers }, nil
	case <-ctx.Done():
	}
	if err = ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
		err = ErrBusy
	}
	return nil, err
}
