// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// stamp begins the version of an agent that has changed. The time at which the server showed the change follows, in
// nanoseconds.
const stamp = "bench-"

// source is an imitated konnectivity-server.
type source struct {
	id      string
	started time.Time

	mu    sync.Mutex
	links []state.Link
	away  int // so many of links, the first ones, are not shown
	// rate is how many agents change in a second, and last when some did.
	rate, next int
	last       time.Time
	owed       float64
	// counts lets the counts of all agents grow with each answer.
	counts bool
	serial int64
	open   []state.Connection
}

func newSource(id string, agents int) *source {
	s := &source{id: id, started: time.Now(), last: time.Now()}
	for i := range agents {
		s.links = append(s.links, state.Link{
			AgentID: fmt.Sprintf("konnectivity-agent-%05d", i), Owner: fmt.Sprintf("node-%05d.example.com", i), Peer: fmt.Sprintf("10.%d.%d.%d:40000", i>>16, i>>8&255, i&255),
			AgentVersion: "v0.9.0", Protocol: state.ProtocolFairlead, Identifiers: []string{fmt.Sprintf("host=node-%05d.example.com", i)},
			Since: s.started, RTTMicroseconds: 400,
		})
	}
	return s
}

// State implements state.Source.
func (s *source) State() state.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.owed += float64(s.rate) * now.Sub(s.last).Seconds()
	s.last = now
	for ; s.owed >= 1; s.owed-- {
		s.links[s.next%len(s.links)].AgentVersion = stamp + strconv.FormatInt(time.Now().UnixNano(), 10)
		s.next++
	}
	if s.counts {
		for i := range s.links {
			s.links[i].DialsTotal += 3
			s.links[i].BytesFromAgent += 4096
		}
	}
	links := slices.Clone(s.links[s.away:])
	return state.State{Version: state.Version, Time: now, Links: links, Server: state.Server{
		ID: s.id, Host: s.id, Started: s.started, Mode: "grpc", Ready: true, CountMode: state.CountByFlag, Count: 1, Connections: int64(len(s.open)),
	}}
}

// Connections implements state.Source.
func (s *source) Connections(after int64, limit int) state.Connections {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := state.Connections{Version: state.Version, Time: time.Now(), ServerID: s.id, Started: s.started}
	from := sort.Search(len(s.open), func(i int) bool { return s.open[i].Serial > after })
	rest := s.open[from:]
	out.More = len(rest) > limit
	out.Connections = append(out.Connections, rest[:min(limit, len(rest))]...)
	return out
}

// connect opens connections and closes the oldest ones above the limit.
func (s *source) connect(n, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.serial++
		s.open = append(s.open, state.Connection{Serial: s.serial, Destination: fmt.Sprintf("10.1.%d.%d:10250", s.serial>>8&255, s.serial&255),
			AgentID: "konnectivity-agent-00001", Owner: "node-00001", Since: time.Now()})
	}
	s.open = s.open[max(0, len(s.open)-limit):]
}

// setRate changes how many agents change in a second.
func (s *source) setRate(rate int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rate, s.last, s.owed = rate, time.Now(), 0
}

// leave lets n agents be away.
func (s *source) leave(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = n
}

// serve shows the state on a socket until stop.
func (s *source) serve(ctx context.Context, dir string) (url string, stop func(), err error) {
	path := filepath.Join(dir, s.id+".socket")
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{Handler: state.Handler(s), ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	return "unix://" + path, func() {
		_ = srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			fmt.Println("the imitated server:", err)
		}
	}, nil
}
