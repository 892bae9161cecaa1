// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/upstream"
)

// world is what an agent finds. It is driven by goroutines of one bubble that wait for time
// alone, so that none of them runs next to another where it matters; the lock is for the
// race detector.
type world struct {
	plan
	a      *Agent
	says   int   // how many servers there are, as each of them says
	down   []int // for each server how many events keep it down
	shut   []int // for each address, likewise
	silent []int
	slow   []int
	lacks  []int
	broken int // the name
	turn   []int
	up     map[int]map[*client]chan struct{} // links, and what ends them
	under  map[string]int
	opened map[string]int
	most   int // tries at once at an address
	faults []string
	lock   chan struct{}
}

const modelAddress = "10.0.0.%d"

func newWorld(p plan) *world {
	n := len(p.leads)
	w := &world{plan: p, says: p.servers, down: make([]int, p.servers), shut: make([]int, n), silent: make([]int, n), slow: make([]int, n), lacks: make([]int, n), turn: make([]int, n),
		up: map[int]map[*client]chan struct{}{}, under: map[string]int{}, opened: map[string]int{}, lock: make(chan struct{}, 1)}
	for i := range p.servers {
		w.up[i] = map[*client]chan struct{}{}
	}
	w.a = New(Config{Address: "servers.test:1", Lookup: w.lookup}, NewMetrics())
	return w
}

func (w *world) do(f func()) {
	w.lock <- struct{}{}
	f()
	<-w.lock
}

func (w *world) lookup(context.Context, string) (ips []string, err error) {
	w.do(func() {
		if w.broken > 0 {
			err = errors.New("no such host")
		}
		for i := range w.leads {
			if w.lacks[i] == 0 {
				ips = append(ips, fmt.Sprintf(modelAddress, i))
			}
		}
	})
	return ips, err
}

// open is the agent's connecting.
func (w *world) open(ctx context.Context, addr, further string) error {
	ctx, cancel := context.WithTimeout(ctx, w.a.cfg.ConnectTimeout)
	defer cancel()
	var at int
	var silent, shut bool
	takes := 2 * time.Millisecond
	w.do(func() {
		_, _ = fmt.Sscanf(addr, modelAddress, &at)
		w.opened[addr]++
		if further == "" {
			w.under[addr]++
			w.most = max(w.most, w.under[addr])
		}
		silent, shut = w.silent[at] > 0, w.shut[at] > 0
		if w.slow[at] > 0 { // one sooner than the one before, at times
			takes = time.Duration(1+w.opened[addr]*7%5) * time.Second
		}
	})
	defer w.do(func() {
		if further == "" {
			w.under[addr]--
		}
	})
	time.Sleep(takes)
	switch {
	case silent:
		<-ctx.Done()
		return ctx.Err()
	case shut:
		return errors.New("connection refused")
	}
	return w.connect(at, addr, further)
}

// connect takes up a link to the next of an address's servers, or to the one that is meant.
func (w *world) connect(at int, addr, further string) (err error) {
	w.do(func() {
		server := w.leads[at][w.turn[at]%len(w.leads[at])]
		w.turn[at]++
		id := fmt.Sprint(server)
		if w.down[server] > 0 {
			err = errors.New("connection refused")
			return
		}
		if further != "" && !slices.Contains(strings.Split(further, ","), id) {
			err = errDuplicate
			return
		}
		c := &client{serverID: id, addr: addr, links: w.links, session: upstream.New(nil, false, upstream.Config{}), done: make(chan struct{})}
		if !w.a.add(c, w.says, further != "") {
			err = errDuplicate
			return
		}
		end := make(chan struct{})
		w.up[server][c] = end
		go w.a.serve(c, func() error { <-end; return errors.New("gone") })
	})
	return err
}

// during has something be so for a time.
func (w *world) during(n *int, d time.Duration) {
	w.do(func() { *n++ })
	go func() {
		time.Sleep(d)
		w.do(func() { *n-- })
	}()
}

func (w *world) happen(e event) {
	server, at := e.Which%w.servers, e.Which%len(w.leads)
	switch e.What {
	case "kill":
		w.during(&w.down[server], e.For)
		w.end(server)
	case "leave": // and be gone some time later
		w.during(&w.down[server], e.For)
		w.do(func() {
			for c := range w.up[server] {
				w.a.serverLeaves(c)
			}
		})
		time.Sleep(e.For / 2)
		w.end(server)
	case "refuse":
		w.during(&w.shut[at], e.For)
	case "hang":
		w.during(&w.silent[at], e.For)
	case "slow":
		w.during(&w.slow[at], e.For)
	case "name fails":
		w.during(&w.broken, e.For)
	case "name lacks":
		w.during(&w.lacks[at], e.For)
	}
}

func (w *world) end(server int) {
	w.do(func() {
		for c, end := range w.up[server] {
			close(end)
			delete(w.up[server], c)
		}
	})
}

func (w *world) run() []string {
	ctx, stop := context.WithCancel(context.Background())
	began := time.Now()
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.a.search(w.open).until(ctx)
	}()
	var latest time.Time
	for _, e := range w.events {
		time.Sleep(e.After)
		w.happen(e)
		if t := time.Now().Add(e.For); t.After(latest) {
			latest = t
		}
	}
	time.Sleep(time.Until(latest))
	// A name or an address may have failed for so long that it is asked again after the cap, an address that leads to
	// several servers has to be asked for each of them, and what hangs does so until its time is up.
	cfg := w.a.cfg
	time.Sleep(time.Duration(w.servers*w.links+3) * (cfg.SyncIntervalCap*11/10 + cfg.ConnectTimeout))
	w.judge(time.Since(began))
	stop()
	<-over
	for i := range w.servers {
		w.end(i)
	}
	w.a.wg.Wait()
	return w.faults
}

func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// judge looks at what there is, and again a minute later.
func (w *world) judge(took time.Duration) {
	var before int
	w.do(func() {
		for i := range w.servers {
			if n := len(w.up[i]); n != w.links {
				w.fault("server %d has %d links", i, n)
			}
		}
		for addr, n := range w.opened {
			// Each second, and some for each event and each link.
			if most := int(took/w.a.cfg.SyncInterval) + (len(w.events)+3)*(w.servers*w.links+maxTriesHere); n > most {
				w.fault("%s was tried %d times in %v", addr, n, took)
			}
			before += n
		}
		if w.most > maxTriesHere {
			w.fault("%d tries at an address at once", w.most)
		}
	})
	time.Sleep(time.Minute)
	w.do(func() {
		for _, n := range w.opened {
			before -= n
		}
		if before != 0 {
			w.fault("%d tries within a minute with all links there", -before)
		}
	})
}
