// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
)

// Servers returns the IDs of the connected servers.
func (a *Agent) Servers() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.serversLocked(false)
}

func (a *Agent) serversLocked(staying bool) []string {
	seen := map[string]bool{}
	var ids []string
	for _, c := range a.clients {
		if !seen[c.serverID] && !(staying && c.leaving) {
			seen[c.serverID] = true
			ids = append(ids, c.serverID)
		}
	}
	return ids
}

// missing is the number of servers that are not connected.
func (a *Agent) missing() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.wanted() - len(a.serversLocked(true))
	a.m.missing.Set(int64(max(n, 0)))
	return n
}

// advertised is the largest number of servers that connected servers tell, without those
// that leave: while the number changes, some tell the old one. It stays as it is while
// there are none; mu is held.
func (a *Agent) advertised() int {
	n := 0
	for _, c := range a.clients {
		if !c.leaving {
			n = max(n, c.count)
		}
	}
	if n > 0 {
		a.count = n
	}
	return a.count
}

// wanted is the number of servers there are; mu is held.
func (a *Agent) wanted() int {
	n := a.advertised()
	if a.cfg.ServerCount != nil {
		n = a.cfg.ServerCount(n)
	}
	n = max(n, 1)
	a.m.serverCount.Set(int64(n))
	return n
}

// usedAddresses are those with a link to a server that stays.
func (a *Agent) usedAddresses() map[string]bool {
	used := map[string]bool{}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.clients {
		if !c.leaving {
			used[c.addr] = true
		}
	}
	return used
}

// thinServers are the servers with fewer links than they want, and the address of one
// of these links. Links that leave do not count: they may carry connections for hours, and
// take no new ones. A server with no other link is missing, and has no further one.
func (a *Agent) thinServers() map[string]string {
	links, addrs := map[string]int{}, map[string]string{}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.clients {
		if !c.leaving {
			links[c.serverID]++
			addrs[c.serverID] = c.addr
		}
	}
	for _, c := range a.clients {
		if links[c.serverID] >= c.links {
			delete(addrs, c.serverID)
		}
	}
	return addrs
}

// lookupTimeout bounds a lookup of the servers' name.
const lookupTimeout = 5 * time.Second

// addresses resolves the servers' name, in random order.
func (a *Agent) addresses(ctx context.Context) ([]string, error) {
	if proxy, err := a.proxy(); err != nil || proxy != nil {
		return []string{a.cfg.Address}, err // the proxy resolves the name
	}
	host, port, err := net.SplitHostPort(a.cfg.Address)
	if err != nil || net.ParseIP(host) != nil {
		return []string{a.cfg.Address}, nil // the dialer says what is wrong with it
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	ips, err := a.cfg.Lookup(ctx, host)
	if err == nil && len(ips) == 0 {
		err = &net.DNSError{Err: "no addresses", Name: host, IsNotFound: true}
	}
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(ips), func(i, j int) { ips[i], ips[j] = ips[j], ips[i] })
	var all []string
	for _, ip := range ips {
		all = append(all, net.JoinHostPort(ip, port))
	}
	return all, nil
}

const (
	// unresolvedPause is the time after which a name that does not resolve is asked for
	// again, unless --sync-interval is less. It grows once it has not resolved for
	// unresolvedSoon: while a cluster starts, DNS is there some seconds after its
	// agents, and an answer costs little.
	unresolvedPause = time.Second
	unresolvedSoon  = 30 * time.Second
)

// resolution is what is known of a name that does not resolve.
type resolution struct {
	since time.Time     // zero while it resolves
	wait  time.Duration // after the last failure
}

// pause is the time to the next look at the name after one that ended with err.
func (u *resolution) pause(err error, cfg *Config) time.Duration {
	switch {
	case err == nil:
		*u = resolution{}
		return cfg.SyncInterval
	case u.since.IsZero():
		*u = resolution{time.Now(), min(cfg.SyncInterval, unresolvedPause)}
	case time.Since(u.since) >= unresolvedSoon:
		u.wait = min(u.wait*3/2, cfg.SyncIntervalCap)
	}
	return jitter(u.wait)
}

// failed counts and logs that an address could not be connected to.
func (a *Agent) failed(addr string, err error) {
	a.throttled.Add(logthrottle.Event{Peer: addr, Message: "Cannot connect to a server", Who: []any{"address", addr}, Err: err})
	a.m.connectFails.With(failReason(err)).Inc()
}

// failReason is what metrics call the reason why an address could not be connected to.
func failReason(err error) string {
	var re *link.RefusedError
	var ne net.Error
	var ce *tls.CertificateVerificationError
	var pe *ProxyError
	switch {
	case errors.As(err, &pe):
		return "proxy"
	case errors.As(err, &re):
		return "refused"
	case errors.As(err, &ce):
		return "certificate"
	case errors.As(err, &ne) && ne.Timeout():
		return "timeout"
	}
	return "error"
}

// jitter keeps agents from doing the same in the same moment.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 + 0.1*rand.Float64()))
}
