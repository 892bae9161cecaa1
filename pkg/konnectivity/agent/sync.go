package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/link"
)

// sync connects to servers until ctx ends.
func (a *Agent) sync(ctx context.Context) {
	wait := a.cfg.SyncInterval
	for ctx.Err() == nil {
		err := a.connectMissing(ctx)
		switch {
		case err == nil || errors.Is(err, errDuplicate):
			wait = a.cfg.SyncInterval
		default:
			a.cfg.Logf(0, "cannot connect to %s: %v", a.cfg.Address, err)
			a.m.connectFails.With(failReason(err)).Inc()
		}
		pause := time.Duration(float64(wait) * (1 + 0.1*rand.Float64()))
		if err != nil && !errors.Is(err, errDuplicate) {
			wait = min(wait*3/2, a.cfg.SyncIntervalCap)
		}
		a.rest(ctx, pause, err == nil)
	}
}

// rest waits before the next look. The loss of a link ends it early, after a
// random time that keeps agents of a server that went away from all coming back
// in the same moment.
func (a *Agent) rest(ctx context.Context, pause time.Duration, poke bool) {
	t := time.NewTimer(pause)
	defer t.Stop()
	var changed chan struct{}
	if poke {
		changed = a.changed
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			return
		case <-changed:
			if a.missing() > 0 {
				changed = nil
				t.Reset(time.Duration(rand.Int64N(int64(min(pause, a.cfg.SyncInterval)/2) + 1)))
			}
		}
	}
}

func failReason(err error) string {
	var re *link.RefusedError
	var ne net.Error
	switch {
	case errors.As(err, &re):
		return "refused"
	case errors.As(err, &ne) && ne.Timeout():
		return "timeout"
	}
	return "error"
}

// missing is the number of servers that are not connected.
func (a *Agent) missing() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.draining.Load() {
		return 0
	}
	return a.wanted() - len(a.serversLocked(true))
}

// wanted is the number of servers there are; mu is held.
func (a *Agent) wanted() int {
	n := a.count
	if a.cfg.ServerCount != nil {
		n = a.cfg.ServerCount(n)
	}
	n = max(n, 1)
	a.m.serverCount.Set(int64(n))
	return n
}

// connectMissing connects to one server more if one is missing, and then opens
// the further links to servers that want several.
func (a *Agent) connectMissing(ctx context.Context) error {
	a.mu.Lock()
	draining := a.draining.Load()
	a.mu.Unlock()
	if draining || (a.missing() <= 0 && !a.cfg.SyncForever) {
		return nil
	}
	for _, addr := range a.addresses(ctx) {
		err := a.connectServer(ctx, addr)
		if !errors.Is(err, errDuplicate) {
			return err
		}
	}
	return errDuplicate
}

// addresses resolves the servers' name. Addresses without a link come first.
func (a *Agent) addresses(ctx context.Context) []string {
	host, port, err := net.SplitHostPort(a.cfg.Address)
	if err != nil || net.ParseIP(host) != nil {
		return []string{a.cfg.Address}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil || len(ips) == 0 {
		return []string{a.cfg.Address} // the dialler will say what is wrong
	}
	rand.Shuffle(len(ips), func(i, j int) { ips[i], ips[j] = ips[j], ips[i] })
	used := map[string]bool{}
	a.mu.Lock()
	for _, c := range a.clients {
		used[c.addr] = !c.leaving
	}
	a.mu.Unlock()
	var first, last []string
	for _, ip := range ips {
		addr := net.JoinHostPort(ip, port)
		if used[addr] {
			last = append(last, addr)
		} else {
			first = append(first, addr)
		}
	}
	return append(first, last...)
}
