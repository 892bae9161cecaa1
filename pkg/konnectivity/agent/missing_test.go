// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/upstream"
)

// finds runs an agent for some time. Each server address answers with a server ID. It
// records the warnings, and the information about addresses, that the agent logged.
type finds struct {
	a *Agent

	mu    sync.Mutex // guards what follows
	lines []string
	leads map[string]string // the server ID that an address answers with; an address without an ID refuses
	ends  []chan struct{}
}

func newFinds(cfg Config, count int, leads map[string]string) (f *finds, open func(context.Context, string, string) error) {
	f = &finds{leads: leads}
	cfg.Address = "servers.test:1"
	cfg.Lookup = func(context.Context, string) (ips []string, err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for addr := range leads {
			ips = append(ips, strings.TrimSuffix(addr, ":1"))
		}
		return ips, nil
	}
	cfg.Logger = logtest.New(func(level int, line string) {
		if level == 0 || strings.Contains(line, "addresses") {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.lines = append(f.lines, line)
		}
	})
	f.a = New(cfg, NewMetrics())
	open = func(_ context.Context, addr, _ string) error {
		time.Sleep(time.Millisecond)
		f.mu.Lock()
		id := f.leads[addr]
		f.mu.Unlock()
		if id == "" {
			return errors.New("connection refused")
		}
		c := &client{serverID: id, addr: addr, links: 1, session: upstream.New(nil, false, upstream.Config{}), done: make(chan struct{})}
		if !f.a.add(c, count, false) {
			return heldBy(id)
		}
		end := make(chan struct{})
		f.mu.Lock()
		f.ends = append(f.ends, end)
		f.mu.Unlock()
		go f.a.serve(c, func() error { <-end; return errors.New("gone") })
		return nil
	}
	return f, open
}

// about returns the warnings about missing servers.
func (f *finds) about() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.lines), func(l string) bool { return strings.Contains(l, "Cannot connect") })
}

// TestMissingIsSaid checks that the agent logs one warning when servers are missing for
// 30 s. It repeats the warning after five minutes at the earliest, and not at all if the
// servers return before that.
func TestMissingIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, open := newFinds(Config{}, 2, map[string]string{"10.0.0.1:1": "a", "10.0.0.2:1": ""})
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { f.a.search(open).until(ctx); close(over) }()
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if got := f.about(); len(got) > 0 {
			t.Errorf("too soon: %q", got)
		}
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		want := `Servers are missing connected="1" servers="2" reason="connected: "a": start the missing servers, or correct --server-count"`
		if got := f.about(); len(got) != 1 || got[0] != want {
			t.Errorf("within five minutes %q, want once %q", got, want)
		}
		if n := f.a.m.missing.Get(); n != 1 {
			t.Errorf("%d servers are counted as missing, want 1", n)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := len(f.about()); n != 2 {
			t.Errorf("%d lines after nine minutes, want 2", n)
		}
		f.mu.Lock()
		f.leads["10.0.0.2:1"] = "b"
		f.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(f.about()); n != 2 || f.a.m.missing.Get() != 0 {
			t.Errorf("with all servers there are %d lines, and %d are missing", n, f.a.m.missing.Get())
		}
		stop()
		<-over
		for _, end := range f.ends {
			close(end)
		}
		f.a.wg.Wait()
	})
}

// TestMissingSaysWhy checks that the warning names the addresses that answer with an ID
// that is already connected, and that the agent warns when --server-count is below the
// number of addresses.
func TestMissingSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		count   int
		forever bool
		leads   map[string]string
		want    string // {1} and {2} are the addresses, in either order
	}{
		"two servers with one ID": {2, false, map[string]string{"10.0.0.1:1": "cloned", "10.0.0.2:1": "cloned"},
			`Servers are missing connected="1" servers="2" reason="connected: "cloned"; {1} and {2} both answer as server "cloned": give each server its own --server-id"`},
		"for ever": {2, true, map[string]string{"10.0.0.1:1": "cloned", "10.0.0.2:1": "cloned"},
			`Servers are missing connected="1" servers="2" reason="connected: "cloned"; {1} and {2} both answer as server "cloned": give each server its own --server-id"`},
		"one address": {3, false, map[string]string{"10.0.0.1:1": "a"},
			`Servers are missing connected="1" servers="3" reason="connected: "a"; {1} answers as a server that is connected: "a": start the missing servers, give each its own --server-id, or correct --server-count"`},
		"none": {1, false, map[string]string{"10.0.0.1:1": ""},
			`Servers are missing connected="0" servers="1" reason="none is connected: start the missing servers, or correct --server-count"`},
		"count too low": {1, false, map[string]string{"10.0.0.1:1": "a", "10.0.0.2:1": "b"},
			`The servers' name has more addresses than there are servers: if each address is a server, raise --server-count of the servers, or set --sync-forever at the agent addresses="2" servers="1"`},
		"dual stack": {1, false, map[string]string{"10.0.0.1:1": "a", "[fd00::1]:1": "a"}, ""},
		"all there":  {2, false, map[string]string{"10.0.0.1:1": "a", "10.0.0.2:1": "b"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, open := newFinds(Config{SyncForever: c.forever}, c.count, c.leads)
				ctx, stop := context.WithCancel(t.Context())
				over := make(chan struct{})
				go func() { f.a.search(open).until(ctx); close(over) }()
				time.Sleep(time.Minute)
				synctest.Wait()
				got := strings.Join(f.about(), "\n")
				one := strings.NewReplacer("{1}", "10.0.0.1:1", "{2}", "10.0.0.2:1").Replace(c.want)
				two := strings.NewReplacer("{1}", "10.0.0.2:1", "{2}", "10.0.0.1:1").Replace(c.want)
				if got != one && got != two {
					t.Errorf("logged\n%s\nwant\n%s", got, one)
				}
				stop()
				<-over
				for _, end := range f.ends {
					close(end)
				}
				f.a.wg.Wait()
			})
		})
	}
}
