// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Delays between an unexpected exit and the next start. The first restart comes
// soon, because most exits happen only once. A program that keeps exiting is
// restarted less and less often. After it has run for backoffReset, the delay
// is reset.
const (
	backoffFirst = 500 * time.Millisecond
	backoffMax   = 30 * time.Second
	backoffReset = time.Minute
)

// unit is one supervised program.
type unit struct {
	spec  Spec
	mark  string
	spawn *spawner
	deps  []*unit

	mu     sync.Mutex
	status Status
	want   bool          // it should run
	proc   *os.Process   // the running program; signaled by handle, never by a PID that may be reused
	poke   chan struct{} // closed and replaced when want changes or the program becomes ready
}

func newUnit(spec Spec, mark string, spawn *spawner) *unit {
	return &unit{
		spec: spec, mark: mark, spawn: spawn, want: true, poke: make(chan struct{}),
		status: Status{Name: spec.Name, State: Waiting, Since: time.Now(), LogFile: spec.LogFile},
	}
}

// update changes the status under the lock and wakes all goroutines that wait
// on the unit.
func (u *unit) update(change func(*Status)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	before := u.status.State
	change(&u.status)
	if u.status.State != before {
		u.status.Since = time.Now()
	}
	u.wake()
}

// wake must be called with the lock held.
func (u *unit) wake() {
	close(u.poke)
	u.poke = make(chan struct{})
}

// setWant sets whether the program should run from now on.
func (u *unit) setWant(want bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.want = want
	if want && u.status.State == Stopped {
		u.status.State, u.status.Since = Waiting, time.Now() // so that a Stop right after does not mistake the old state for its own
	}
	u.wake()
}

// snapshot returns the status, whether the program should run, and a channel
// that closes at the next change.
func (u *unit) snapshot() (Status, bool, <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.status, u.want, u.poke
}

// kill sends SIGKILL to the running program; it is then restarted as after any
// other exit.
func (u *unit) kill() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.proc == nil {
		return fmt.Errorf("%s is not running", u.spec.Name)
	}
	return u.proc.Kill()
}

// run keeps the program in the wanted state until ctx ends, then stops it.
func (u *unit) run(ctx context.Context) {
	delay := backoffFirst
	for ctx.Err() == nil {
		if !u.awaitStart(ctx) {
			continue
		}
		began := time.Now()
		err := u.runOnce(ctx)
		if _, want, _ := u.snapshot(); !want || ctx.Err() != nil {
			u.update(func(s *Status) { s.State, s.PID, s.Ready, s.Reason = Stopped, 0, false, "" })
			delay = backoffFirst
			continue
		}
		if time.Since(began) > backoffReset {
			delay = backoffFirst
		}
		u.backOff(ctx, err, delay)
		delay = min(2*delay, backoffMax)
	}
	u.update(func(s *Status) { s.State, s.PID, s.Ready = Stopped, 0, false })
}

// awaitStart waits until the program should run and all its dependencies are
// ready. It returns false if something has changed meanwhile and the caller
// must check again.
func (u *unit) awaitStart(ctx context.Context) bool {
	_, want, changed := u.snapshot()
	if !want {
		u.update(func(s *Status) { s.State, s.PID, s.Ready, s.Reason = Stopped, 0, false, "" })
		_, want, changed = u.snapshot()
		if !want {
			waitAny(ctx, changed, nil)
		}
		return false
	}
	reason, dep := u.missing()
	if reason == "" {
		return true
	}
	if status, _, _ := u.snapshot(); status.State != Waiting || status.Reason != reason {
		u.update(func(s *Status) { s.State, s.PID, s.Ready, s.Reason = Waiting, 0, false, reason })
		return false
	}
	waitAny(ctx, changed, dep)
	return false
}

// missing returns what the program still waits for, and a channel that closes
// when that may have changed.
func (u *unit) missing() (string, <-chan struct{}) {
	for _, d := range u.deps {
		if status, _, changed := d.snapshot(); !status.Ready {
			return "waiting for " + d.spec.Name, changed
		}
	}
	for _, file := range u.spec.NeedsFiles {
		if info, err := os.Stat(file); err != nil || info.Size() == 0 {
			return "waiting for the file " + file, nil
		}
	}
	return "", nil
}

// waitAny returns when one of the channels closes or the context ends. If dep
// is nil, it also returns after a tenth of a second, because files send no
// notification.
func waitAny(ctx context.Context, changed, dep <-chan struct{}) {
	var tick <-chan time.Time
	if dep == nil {
		tick = time.After(100 * time.Millisecond)
	}
	select {
	case <-ctx.Done():
	case <-changed:
	case <-dep:
	case <-tick:
	}
}

// runOnce starts the program and returns when it has exited.
func (u *unit) runOnce(ctx context.Context) error {
	logFile, err := os.OpenFile(u.spec.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening its log: %w", err)
	}
	defer func() { _ = logFile.Close() }()
	cmd := command(u.spec, u.mark)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := u.spawn.start(cmd); err != nil {
		return err
	}
	u.setProcess(cmd.Process)
	u.update(func(s *Status) { s.State, s.PID, s.Reason = Running, cmd.Process.Pid, "" })
	defer func() {
		u.setProcess(nil)
		// Kill the program's own child processes: they are of no use without
		// it.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}()

	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	probing, stopProbing := context.WithCancel(ctx)
	defer stopProbing()
	go u.probe(probing, cmd.Process.Pid)
	return u.awaitEnd(ctx, cmd, ended)
}

// awaitEnd waits for the program to exit, and stops it when it is no longer
// wanted.
func (u *unit) awaitEnd(ctx context.Context, cmd *exec.Cmd, ended <-chan error) error {
	for {
		_, want, changed := u.snapshot()
		if !want || ctx.Err() != nil {
			return u.stop(cmd, ended)
		}
		select {
		case err := <-ended:
			return err
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// stop ends the program with SIGTERM, and with SIGKILL if it takes too long.
func (u *unit) stop(cmd *exec.Cmd, ended <-chan error) error {
	limit := u.spec.StopTimeout
	if limit == 0 {
		limit = DefaultStopTimeout
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		return err
	case <-time.After(limit):
		_ = cmd.Process.Kill()
		return <-ended
	}
}

func (u *unit) setProcess(p *os.Process) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.proc = p
}

// probe updates Ready with the probe's result until ctx ends, which it does
// when the process exits.
func (u *unit) probe(ctx context.Context, pid int) {
	ready, failures := false, 0
	set := func(value bool) {
		ready = value
		u.update(func(s *Status) {
			if s.PID == pid {
				s.Ready = value
			}
		})
	}
	if u.spec.Ready == nil {
		set(true)
		return
	}
	for ctx.Err() == nil {
		if err := u.spec.Ready.Check(ctx); err == nil {
			if failures = 0; !ready {
				set(true)
			}
		} else if failures++; ready && failures >= probeFailures {
			set(false)
		}
		pause := probeInterval
		if ready {
			pause = watchInterval
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// backOff records an unexpected exit and waits before the next start.
func (u *unit) backOff(ctx context.Context, err error, delay time.Duration) {
	reason := "ended by itself with status 0"
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		reason = "ended: " + exit.String()
	case err != nil:
		reason = "could not be started: " + err.Error()
	}
	u.update(func(s *Status) {
		s.State, s.PID, s.Ready, s.Reason = BackingOff, 0, false, reason
		s.Restarts++
	})
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for {
		_, want, changed := u.snapshot()
		if !want {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-changed:
		}
	}
}
