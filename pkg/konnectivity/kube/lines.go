package kube

import (
	"context"
	"errors"
	"net/netip"
	"sync"
)

// lines lets the requests that a host causes wait behind each other, and only the first of
// them in the line of all: whoever has others ask the API server, with wrong tokens say,
// delays those who do the same from that host, and everybody else by one request.
type lines struct {
	mu sync.Mutex
	of map[netip.Prefix]*line
}

type line struct {
	first chan struct{} // holds the request that waits in the line of all; Go serves senders in order
	n     int           // requests that wait, the first included
}

// enter waits until the caller is the first of its host, and returns what lets the next be.
// The error is ErrBusy after the deadline.
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

// hostOf returns the address of a peer, "HOST:PORT", and of IPv6 the network of 64 bits,
// all of which one host may have. What is no address is one host.
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
