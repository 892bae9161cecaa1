// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/upstream"
)

// TestPauseOfUnresolvedName: a name that does not resolve is asked for about every
// second at first, and then less and less often.
func TestPauseOfUnresolvedName(t *testing.T) {
	cfg := &Config{SyncInterval: 2 * time.Second}
	cfg.defaults()
	var u resolution
	failed := errors.New("no such host")
	about := func(got, want time.Duration) {
		t.Helper()
		if got < want || got > want*5/4 {
			t.Errorf("a pause of %v, want about %v", got, want)
		}
	}
	for range 40 {
		about(u.pause(failed, cfg), time.Second)
	}
	u.since = time.Now().Add(-unresolvedSoon)
	about(u.pause(failed, cfg), 3*time.Second/2)
	for range 10 {
		u.pause(failed, cfg)
	}
	about(u.pause(failed, cfg), cfg.SyncIntervalCap)
	about(u.pause(nil, cfg), cfg.SyncInterval)
	about(u.pause(failed, cfg), time.Second)
}

// TestServerCount: while servers disagree about their number, the agent takes the largest
// number that a connected server reports, in whatever order they connected. Servers that
// leave do not count. The last number stays while no server is connected.
func TestServerCount(t *testing.T) {
	a := New(Config{}, NewMetrics())
	at := map[string]*client{}
	for _, step := range []struct {
		name   string
		says   int // 0: it goes
		leaves bool
		want   int
	}{
		{"new", 6, false, 6},
		{"old", 2, false, 6}, // it came last
		{"other", 5, false, 6},
		{"new", 0, true, 5}, // it leaves, and its link is still there
		{"new", 0, false, 5},
		{"silent", 0, false, 5},
		{"other", 0, false, 2},
		{"old", 0, false, 2}, // "silent" says nothing
		{"silent", 0, false, 2},
		{"fewer", 1, false, 1},
	} {
		c, here := at[step.name]
		switch {
		case step.leaves:
			c.leaving = true
		case here:
			a.clients = without(a.clients, c)
		default:
			at[step.name] = &client{serverID: step.name, links: 1, session: upstream.New(nil, false, upstream.Config{})}
			if !a.add(at[step.name], step.says, false) {
				t.Fatalf("%s is not taken up", step.name)
			}
		}
		a.missing()
		if got := a.m.serverCount.Get(); got != int64(step.want) {
			t.Errorf("after %+v: %d servers are wanted", step, got)
		}
	}
}

// TestLostServerIsTriedAgain: an agent whose other servers do not know of a server that it
// had looks for that one again, for some time.
func TestLostServerIsTriedAgain(t *testing.T) {
	for away, back := range map[time.Duration]bool{lostAgain / 2: true, 10 * lostAgain: false} {
		synctest.Test(t, func(t *testing.T) {
			a := New(Config{Address: "servers.test:1"}, NewMetrics())
			a.cfg.Lookup = func(context.Context, string) ([]string, error) { return []string{"10.0.0.0", "10.0.0.1"}, nil }
			began, ends, tries := time.Now(), make(chan struct{}), 0
			add := func(id string, count int, end chan struct{}) error {
				c := &client{serverID: id, addr: "10.0.0." + id + ":1", links: 1, session: upstream.New(nil, false, upstream.Config{}), done: make(chan struct{})}
				if !a.add(c, count, false) {
					return errDuplicate
				}
				go a.serve(c, func() error { <-end; return errors.New("gone") })
				return nil
			}
			open := func(_ context.Context, addr, _ string) error {
				tries++
				var id string
				_, _ = fmt.Sscanf(addr, "10.0.0.%1s", &id)
				if gone := time.Since(began); id == "1" && gone < away {
					return errors.New("connection refused")
				}
				return add(id, 1, ends)
			}
			once := make(chan struct{})
			_, _ = add("0", 1, ends), add("1", 2, once)
			ctx, stop := context.WithCancel(t.Context())
			over := make(chan struct{})
			go func() { defer close(over); a.search(open).until(ctx) }()
			close(once)
			time.Sleep(away + 2*lostAgain)
			if got := len(a.Servers()) == 2; got != back {
				t.Errorf("away for %v: servers %q, want both: %v", away, a.Servers(), back)
			}
			if most := int(lostAgain / time.Second); tries > most {
				t.Errorf("away for %v: %d tries", away, tries)
			}
			stop()
			close(ends)
			<-over
			a.wg.Wait()
		})
	}
}

func without(all []*client, gone *client) (rest []*client) {
	for _, c := range all {
		if c != gone {
			rest = append(rest, c)
		}
	}
	return rest
}
