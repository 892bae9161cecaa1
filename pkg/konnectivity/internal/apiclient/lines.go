// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"errors"
	"net/netip"
	"sync"
)

// lines queues the requests that each host causes. Only the first request of each host
// waits in the common queue. A host that causes many requests to the API server, with wrong
// tokens for example, delays the other requests of that host, but delays other hosts by one
// request only.
type lines struct {
	mu sync.Mutex
	of map[netip.Prefix]*line
}

type line struct {
	first chan struct{} // holds the request that waits in the common queue; Go serves senders in order
	n     int           // waiting requests, including the first
}

// enter waits until the caller is the first of its host. The returned function lets the
// next caller of that host in. The error is ErrBusy if the deadline passes first.
func (ls *lines) enter(ctx context.Context, peer string) (leave func(), err error) {
	from := hostOf(peer)
	ls.mu.Lock()
	l := ls.of[from]
	if l == nil {
		l = &line{first: make(chan struct{}, 1)}
		if ls.of == nil {
			ls.of = map[netip.Prefix]*line{}
		}
		ls.of[from] = l
	}
	l.n++
	ls.mu.Unlock()
	select {
	case l.first <- struct{}{}:
		return func() { <-l.first; ls.left(from, l) }, nil
	case <-ctx.Done():
		ls.left(from, l)
		if err = ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
			err = ErrBusy
		}
		return nil, err
	}
}

func (ls *lines) left(from netip.Prefix, l *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.n--; l.n == 0 {
		delete(ls.of, from)
	}
}

// hostOf returns the IPv4 address of a peer, "HOST:PORT", or the /64 network of its IPv6
// address, because one host may have all addresses of such a network. All peers that are
// not addresses count as one host.
func hostOf(peer string) netip.Prefix {
	ap, err := netip.ParseAddrPort(peer)
	if err != nil {
		return netip.Prefix{}
	}
	a, bits := ap.Addr().Unmap().WithZone(""), 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}
