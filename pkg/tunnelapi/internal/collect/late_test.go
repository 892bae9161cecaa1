// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// lateServer answers after a time, or when the request ends.
type lateServer struct {
	takes time.Duration
	mu    sync.Mutex
	state *state.State
}

func (s *lateServer) State(ctx context.Context) (*state.State, error) {
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, nil
}

func (s *lateServer) Connections(context.Context, int64, int) (*state.Connections, error) {
	return nil, errors.New("not asked")
}

func (s *lateServer) set(st *state.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = st
}

// lateFinder finds servers after a time.
type lateFinder struct {
	takes   time.Duration
	servers map[string]Asker
}

func (f *lateFinder) Find(ctx context.Context) (map[string]Asker, error) {
	select {
	case <-time.After(f.takes):
		return f.servers, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestLateServers: a server that has frozen, and a look for servers that hangs, delay no change at the other servers, and a
// change at a server that is slow shows when its answer comes.
func TestLateServers(t *testing.T) {
	const frozen = time.Hour
	for name, c := range map[string]struct{ find, good, other, within time.Duration }{
		"a frozen server":         {0, 10 * time.Millisecond, frozen, 1300 * time.Millisecond},
		"a slow lookup":           {4 * time.Second, 10 * time.Millisecond, 0, 1300 * time.Millisecond},
		"beside a slow server":    {0, 700 * time.Millisecond, frozen, 2 * time.Second},
		"all of them are in time": {0, 10 * time.Millisecond, 10 * time.Millisecond, 1100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				good, other := &lateServer{takes: c.good, state: answer("good")}, &lateServer{takes: c.other, state: answer("other")}
				agents := &sink{objects: map[string]runtime.Object{}}
				collector := New(Config{Finder: &lateFinder{c.find, map[string]Asker{"1": good, "2": other}}, Agents: agents,
					Servers: &sink{objects: map[string]runtime.Object{}}, AgentsPrefix: "/", ServersPrefix: "/"})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); collector.Run(ctx) }()
				for end := time.Now().Add(time.Minute); collector.Ready() != nil; time.Sleep(10 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal("the collector is not ready")
					}
				}
				for range 20 { // at different times of a round
					time.Sleep(3*time.Second + 170*time.Millisecond)
					good.set(answer("good", state.Link{AgentID: "a"}))
					time.Sleep(c.within)
					synctest.Wait()
					if len(agents.objects) != 1 {
						t.Fatalf("the agent is not shown after %v", c.within)
					}
					good.set(answer("good"))
					time.Sleep(c.within)
					synctest.Wait()
					if a := agents.objects["a"].(*v1alpha1.TunnelAgent); a.Status.Conditions[0].Status != "False" {
						t.Fatalf("the agent is connected after %v", c.within)
					}
				}
				cancel()
				<-done
			})
		})
	}
}

// connecting is a server that opens connections after a time.
type connecting struct {
	lateServer
	frozen atomic.Bool
	needs  time.Duration
	tries  *int
}

func (s *connecting) State(ctx context.Context) (*state.State, error) {
	if s.frozen.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.lateServer.State(ctx)
}

func (s *connecting) Connect(ctx context.Context, _ string, _ *state.Agent) (net.Conn, error) {
	*s.tries++
	select {
	case <-time.After(s.needs):
		here, there := net.Pipe()
		_ = there.Close()
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestSlowDestination: a destination that needs longer than a server's share of the time is waited for, and not dialed
// again at another server. A server that has frozen is waited for in its share only.
func TestSlowDestination(t *testing.T) {
	for name, c := range map[string]struct {
		frozen int // of three servers
		needs  time.Duration
		tries  int
		ok     bool
	}{
		"all answer":          {0, 12 * time.Second, 1, true},
		"all answer, in time": {0, 29 * time.Second, 1, true},
		"too slow":            {0, 31 * time.Second, 1, false},
		"two are frozen":      {2, 9 * time.Second, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries, found := 0, map[string]Asker{}
				a := &v1alpha1.TunnelAgent{}
				for i := range 3 {
					id := fmt.Sprint(i)
					found[id] = &connecting{lateServer: lateServer{state: answer(id)}, needs: c.needs, tries: &tries}
					// In this order: silent ones are tried last, and draining ones before.
					a.Status.Servers = append(a.Status.Servers, v1alpha1.AgentServer{ServerID: id, Silent: i == 2, Draining: i == 1})
				}
				collector := New(Config{Finder: &lateFinder{servers: found}, Agents: &sink{objects: map[string]runtime.Object{}}, Servers: &sink{objects: map[string]runtime.Object{}}})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go collector.Run(ctx)
				time.Sleep(5 * time.Second)
				for i := range c.frozen {
					s := found[fmt.Sprint(i)].(*connecting)
					s.frozen.Store(true)
					s.needs = time.Hour
				}
				ctx, end := context.WithTimeout(ctx, 30*time.Second)
				defer end()
				nc, err := collector.Connect(ctx, a, "192.0.2.1:80")
				if (err == nil) != c.ok || tries != c.tries || errors.Is(err, ErrSilent) {
					t.Errorf("%v after %d tries, want %d", err, tries, c.tries)
				}
				if nc != nil {
					_ = nc.Close()
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

// heldSink takes objects when the test lets it.
type heldSink struct {
	sink
	entered, release chan struct{}
}

func (s *heldSink) Put(key string, obj runtime.Object) error {
	s.entered <- struct{}{}
	<-s.release
	return s.sink.Put(key, obj)
}

// TestHeldSink: while a sink holds up the collector, because watches get what it writes, requests for connections and the
// health check are answered, and answers of servers are taken.
func TestHeldSink(t *testing.T) {
	held := &heldSink{sink{objects: map[string]runtime.Object{}}, make(chan struct{}), make(chan struct{})}
	s := &shows{fake{state: answer("one", state.Link{AgentID: "a"})}}
	c := New(Config{Finder: &lateFinder{servers: map[string]Asker{"1": s}}, Agents: held, Servers: &sink{objects: map[string]runtime.Object{}}, AgentsPrefix: "/", ServersPrefix: "/"})
	done := make(chan struct{})
	go func() { defer close(done); c.Round(t.Context()) }()
	<-held.entered
	answered := make(chan error, 1)
	go func() {
		_ = c.Ready()
		c.poll(t.Context())
		_, _, err := c.Connections(t.Context(), func(*v1alpha1.TunnelConnection) bool { return true }, 1)
		answered <- err
	}()
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("requests wait for the sink")
	}
	close(held.release)
	<-done
}

// failing finds no servers, until it does.
type failing struct {
	finder
	err error
}

func (f *failing) Find(ctx context.Context) (map[string]Asker, error) {
	found, _ := f.finder.Find(ctx)
	return found, f.err
}

// TestServersNotFound: while servers cannot be found, the API is not ready, and says why. What is known of servers that were
// found before counts.
func TestServersNotFound(t *testing.T) {
	f := &failing{err: errors.New("no such host")}
	c := New(Config{Finder: f, Agents: &sink{objects: map[string]runtime.Object{}}, Servers: &sink{objects: map[string]runtime.Object{}}})
	all := func(*v1alpha1.TunnelConnection) bool { return true }
	c.Round(t.Context())
	if err := c.Ready(); err == nil || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("ready: %v", err)
	}
	if _, _, err := c.Connections(t.Context(), all, 1); !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("connections: %v", err)
	}
	shown := &shows{fake{state: answer("one")}}
	f.finder, f.err = nil, nil
	c.cfg.Finder = &lateFinder{servers: map[string]Asker{"1": shown}}
	c.Round(t.Context())
	if err := c.Ready(); err != nil {
		t.Errorf("ready: %v", err)
	}
	if _, missing, err := c.Connections(t.Context(), all, 1); err != nil || len(missing) != 0 {
		t.Errorf("connections: %v, %v", missing, err)
	}
	f.err = errors.New("no such host")
	c.cfg.Finder = f
	c.Round(t.Context())
	_, missing, err := c.Connections(t.Context(), all, 1)
	if err != nil || len(missing) != 1 || !strings.Contains(missing[0].Of("connections"), "may be missing: no such host") || c.Ready() != nil {
		t.Errorf("connections: %v, %v; ready: %v", missing, err, c.Ready())
	}
}

// TestStaleServersAreNotAsked: a list of connections does not wait for a server that has stopped to show its state, and
// says why its connections are missing.
func TestStaleServersAreNotAsked(t *testing.T) {
	one, two := &shows{fake{state: answer("one")}}, &fake{state: answer("two")}
	now := time.Now()
	c := New(Config{Finder: &lateFinder{servers: map[string]Asker{"1": one, "2": two}}, Agents: &sink{objects: map[string]runtime.Object{}},
		Servers: &sink{objects: map[string]runtime.Object{}}, Now: func() time.Time { return now }})
	for _, step := range []struct {
		wait time.Duration
		err  error
		want string
	}{{0, nil, "not asked"}, {11 * time.Second, errors.New("frozen"), "frozen"}, {time.Second, nil, "not asked"}} {
		now, two.err = now.Add(step.wait), step.err
		c.Round(t.Context())
		_, missing, err := c.Connections(t.Context(), func(*v1alpha1.TunnelConnection) bool { return true }, 1)
		if err != nil || len(missing) != 1 || missing[0].Server != "two" || missing[0].Err.Error() != step.want {
			t.Errorf("after %v more: missing %v, %v, want two: %s", step.wait, missing, err, step.want)
		}
	}
}

// TestReady: without the answer of any server it is not known which agents there are. That is so for servers that fail, and
// not for those that are all older and never answer. Who has been ready stays that.
func TestReady(t *testing.T) {
	fails, older, good := &fake{err: errors.New("no answer")}, &fake{err: state.ErrOlder}, &fake{state: answer("one")}
	for name, c := range map[string]struct {
		servers finder
		ready   bool
	}{
		"no server":          {finder{}, false},
		"all fail":           {finder{"1": fails, "2": fails}, false},
		"one is older":       {finder{"1": fails, "2": older}, false},
		"all are older":      {finder{"1": older, "2": older}, true},
		"one answers":        {finder{"1": fails, "2": good}, true},
		"one answers, older": {finder{"1": older, "2": good}, true},
	} {
		w := newWorld(t, c.servers)
		w.after(time.Second)
		if err := w.c.Ready(); (err == nil) != c.ready {
			t.Errorf("%s: ready: %v", name, err)
		}
		for address := range w.servers {
			w.servers[address] = fails
		}
		w.after(time.Hour)
		if err := w.c.Ready(); (err == nil) != c.ready {
			t.Errorf("%s, and later none: ready: %v", name, err)
		}
	}
}

// shows is a server that has no connections.
type shows struct{ fake }

func (*shows) Connections(context.Context, int64, int) (*state.Connections, error) {
	return &state.Connections{Version: 1}, nil
}
