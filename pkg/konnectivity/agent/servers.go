package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/link"
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
// of these links.
func (a *Agent) thinServers() map[string]string {
	links, addrs := map[string]int{}, map[string]string{}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.clients {
		links[c.serverID]++
		addrs[c.serverID] = c.addr
	}
	for _, c := range a.clients {
		if c.leaving || links[c.serverID] >= c.links {
			delete(addrs, c.serverID)
		}
	}
	return addrs
}

// addresses resolves the servers' name, in random order; nil if it does not resolve.
func (a *Agent) addresses(ctx context.Context) []string {
	host, port, err := net.SplitHostPort(a.cfg.Address)
	if err != nil || net.ParseIP(host) != nil {
		return []string{a.cfg.Address}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ips, err := a.cfg.Lookup(ctx, host)
	if err != nil {
		return nil
	}
	rand.Shuffle(len(ips), func(i, j int) { ips[i], ips[j] = ips[j], ips[i] })
	var all []string
	for _, ip := range ips {
		all = append(all, net.JoinHostPort(ip, port))
	}
	return all
}

// failReason is what metrics call the reason why an address could not be connected to.
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

// jitter keeps agents from doing the same in the same moment.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 + 0.1*rand.Float64()))
}
