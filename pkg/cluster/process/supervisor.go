// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Supervisor runs a set of programs.
type Supervisor struct {
	units []*unit
	spawn *spawner
}

// New returns a supervisor that is not running yet. Every process that it
// starts has the environment variable MarkEnv=mark, usually the directory of
// its state.
func New(mark string, specs []Spec) (*Supervisor, error) {
	if err := Validate(specs); err != nil {
		return nil, err
	}
	s := &Supervisor{spawn: newSpawner()}
	byName := map[string]*unit{}
	for _, spec := range specs {
		u := newUnit(spec, mark, s.spawn)
		byName[spec.Name] = u
		s.units = append(s.units, u)
	}
	for _, u := range s.units {
		for _, dep := range u.spec.After {
			u.deps = append(u.deps, byName[dep])
		}
	}
	return s, nil
}

// Run starts the programs and keeps them running until ctx ends. Then it stops
// them, dependents before their dependencies, and returns.
func (s *Supervisor) Run(ctx context.Context) {
	defer s.spawn.close()
	stops := map[*unit]context.CancelFunc{}
	ended := map[*unit]chan struct{}{}
	for _, u := range s.units {
		unitCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan struct{})
		stops[u], ended[u] = stop, done
		go func() {
			defer close(done)
			u.run(unitCtx)
		}()
	}
	<-ctx.Done()
	var all sync.WaitGroup
	for _, u := range s.units {
		all.Go(func() {
			// Programs that depend on u stop first.
			for _, other := range s.units {
				if slices.Contains(other.deps, u) {
					<-ended[other]
				}
			}
			stops[u]()
			<-ended[u]
		})
	}
	all.Wait()
}

// Status lists the programs in the order of their specs.
func (s *Supervisor) Status() []Status {
	list := make([]Status, 0, len(s.units))
	for _, u := range s.units {
		status, _, _ := u.snapshot()
		if status.PID != 0 {
			status.RSSBytes = rssBytes(status.PID)
		}
		list = append(list, status)
	}
	return list
}

// ErrUnknown is returned if there is no program of that name.
var ErrUnknown = fmt.Errorf("no such program")

func (s *Supervisor) unit(name string) (*unit, error) {
	for _, u := range s.units {
		if u.spec.Name == name {
			return u, nil
		}
	}
	return nil, fmt.Errorf("%w: %q", ErrUnknown, name)
}

// Stop stops a program and returns once it has exited; it stays stopped until
// Start.
func (s *Supervisor) Stop(ctx context.Context, name string) error {
	u, err := s.unit(name)
	if err != nil {
		return err
	}
	u.setWant(false)
	return u.await(ctx, func(st Status) bool { return st.State == Stopped })
}

// Start starts a stopped program again and returns at once; Status reports when
// it is ready.
func (s *Supervisor) Start(name string) error {
	u, err := s.unit(name)
	if err != nil {
		return err
	}
	u.setWant(true)
	return nil
}

// Kill sends SIGKILL to a program. It is then restarted like one that exited by
// itself.
func (s *Supervisor) Kill(name string) error {
	u, err := s.unit(name)
	if err != nil {
		return err
	}
	return u.kill()
}

// await blocks until the status satisfies ok.
func (u *unit) await(ctx context.Context, ok func(Status) bool) error {
	for {
		status, _, changed := u.snapshot()
		if ok(status) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is still %s: %w", u.spec.Name, status.State, ctx.Err())
		case <-changed:
		}
	}
}
