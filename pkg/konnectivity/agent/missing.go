// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
)

// duplicateError says that the address led to one of these servers, which are connected
// already. It is errDuplicate.
type duplicateError struct{ ids []string }

func (e *duplicateError) Error() string { return errDuplicate.Error() }

// Is implements what errors.Is asks for.
func (e *duplicateError) Is(target error) bool { return target == errDuplicate }

// heldBy is the error for an address that led to one of these servers, with commas.
func heldBy(ids string) error {
	if ids == "" {
		return errDuplicate
	}
	return &duplicateError{strings.Split(ids, ",")}
}

// missingPeer is what the log of refusals knows missing servers by.
const missingPeer = "missing servers"

// watchMissing warns when servers have been missing for some time: calls through these
// fail, and everything else looks healthy.
func (s *search) watchMissing(missing int) {
	if missing <= 0 {
		if !s.warnAt.IsZero() {
			s.warnAt = time.Time{}
			s.a.throttled.Forget(missingPeer)
		}
		clear(s.held)
		s.noteMoreAddresses()
		return
	}
	if s.warnAt.IsZero() {
		s.warnAt = time.Now().Add(s.a.cfg.MissingAfter)
	}
	if !s.reached(s.warnAt) {
		return
	}
	s.warnAt = time.Now().Add(s.a.cfg.MissingAfter)
	links := s.a.linkAddresses()
	s.a.throttled.Add(logthrottle.Event{Peer: missingPeer, Message: "Servers are missing", Why: []any{"connected", len(links), "servers", len(links) + missing, "reason", s.whyMissing(links)}})
}

// whyMissing says what is known of servers that are missing; links are the addresses of
// the links to each server that is not.
func (s *search) whyMissing(links map[string][]string) string {
	connected, advice := "none is connected", "start the missing servers, or correct --server-count"
	if len(links) > 0 {
		connected = "connected: " + quoted(slices.Sorted(maps.Keys(links)))
	}
	text := []string{connected}
	for _, addr := range slices.Sorted(maps.Keys(s.held)) {
		ids := s.held[addr]
		if slices.ContainsFunc(ids, func(id string) bool { return links[id] == nil }) {
			continue // it was another server then
		}
		itself := slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(links[id], addr) })
		switch {
		case itself && len(s.order) > 1: // as it should
			continue
		case !itself && len(ids) == 1:
			text = append(text, fmt.Sprintf("%s and %s both answer as server %q", links[ids[0]][0], addr, ids[0]))
			advice = "give each server its own --server-id"
		default:
			text = append(text, fmt.Sprintf("%s answers as a server that is connected: %s", addr, quoted(ids)))
			advice = "start the missing servers, give each its own --server-id, or correct --server-count"
		}
		if len(text) > maxReasons {
			break
		}
	}
	return strings.Join(text, "; ") + ": " + advice
}

// maxReasons bounds the addresses in a warning.
const maxReasons = 4

func quoted(ids []string) string {
	var all []string
	for _, id := range ids {
		all = append(all, fmt.Sprintf("%.100q", id))
	}
	return strings.Join(all, ", ")
}

// linkAddresses are the addresses of links to each server that stays.
func (a *Agent) linkAddresses() map[string][]string {
	links := map[string][]string{}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.clients {
		if !c.leaving {
			links[c.serverID] = append(links[c.serverID], c.addr)
		}
	}
	return links
}

// noteAnswer remembers an address that leads to a server that is connected already.
func (s *search) noteAnswer(addr string, held []string) {
	if held == nil {
		delete(s.held, addr)
		return
	}
	s.held[addr] = held
}

// noteMoreAddresses says, once, that the servers' name has more addresses than there are
// servers: with a --server-count that is too low the rest get no agent. A load balancer with
// several addresses looks the same, so it is no warning.
func (s *search) noteMoreAddresses() {
	if s.a.cfg.SyncForever || s.saidMore {
		return
	}
	v4, v6 := 0, 0 // a server may have one of each
	for _, addr := range s.named {
		if a, err := netip.ParseAddrPort(addr); err == nil && a.Addr().Unmap().Is4() {
			v4++
		} else {
			v6++
		}
	}
	wanted := len(s.a.linkAddresses())
	if n := max(v4, v6); wanted > 0 && n > wanted {
		s.saidMore = true
		s.a.cfg.Logger.V(1).Info("The servers' name has more addresses than there are servers: if each address is a server, raise --server-count of the servers, or set --sync-forever at the agent",
			"addresses", n, "servers", wanted)
	}
}
