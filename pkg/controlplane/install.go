// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// Result is the outcome of a run.
type Result struct {
	// Changed is true if anything was changed.
	Changed bool `json:"changed"`
	// Resumed means that this run completed an earlier, interrupted one.
	Resumed bool `json:"resumed,omitempty"`
	// Files were created, replaced or removed.
	Files []string `json:"files,omitempty"`
	// Left are files that Uninstall did not touch, and why.
	Left []string `json:"left,omitempty"`
	// EgressSelector is the flag that kube-apiserver has after Uninstall although
	// Install did not add it; empty if kube-apiserver dials nodes directly.
	EgressSelector string `json:"egressSelector,omitempty"`
}

// Install installs the tunnel in this node's control plane, or updates an earlier
// installation according to the bundle. If anything fails, or ctx is canceled,
// it rolls everything back and returns [ErrRolledBack]. If the run could not even
// start, it returns [ErrPreflight]. If an earlier run was killed, Install
// completes it if that was for the same bundle, and otherwise rolls it back
// first.
func Install(ctx context.Context, o Options) (Result, error) {
	n := newNode(o.defaulted())
	if err := n.checkNode(); err != nil {
		return Result{}, preflightError(err)
	}
	unlock, err := journal.Lock(n.Host)
	if err != nil {
		return Result{}, preflightError(err)
	}
	defer unlock()
	if result, done, err := n.resume(ctx, OpInstall, n.desired()); err != nil || done {
		return result, err
	}
	n.takeOver(ctx)
	j, err := n.planInstall(ctx)
	if err != nil {
		return Result{}, preflightError(err)
	}
	return n.run(ctx, j)
}

func preflightError(err error) error {
	return fmt.Errorf("%w: %w", ErrPreflight, explain(err))
}

// run executes a planned change.
func (n *node) run(ctx context.Context, j *journal.Journal) (Result, error) {
	if j.NothingToDo() && n.recorded(j.State) {
		return Result{}, n.confirm(ctx, j)
	}
	t := &journal.Transaction{Host: n.Host, Journal: j, After: n.opts.after}
	err := progress.Step(n.opts.Progress, "Laying new files ready", func() (string, error) {
		return progress.Count(len(j.Changes), "file"), t.Prepare()
	})
	if err != nil {
		return Result{}, preflightError(err)
	}
	return n.execute(ctx, t)
}

// recorded reports whether the recorded state says what an uninstallation must know after a
// run that changes nothing.
func (n *node) recorded(after *State) bool {
	if after == nil || n.state == nil {
		return after == n.state
	}
	return reflect.DeepEqual(after.Kubeadm, n.state.Kubeadm)
}

// confirm checks a node on which everything is in place: the programs must work
// as well.
func (n *node) confirm(ctx context.Context, j *journal.Journal) error {
	if j.Operation != OpInstall {
		return nil
	}
	e := &nodeEffects{node: n, journal: j, since: time.Now()}
	for _, step := range []Step{StepServer, StepAPIServer} {
		if err := e.Made(ctx, step); err != nil {
			return fmt.Errorf("everything is installed, but %w", err)
		}
	}
	return nil
}

// execute applies the changes, and rolls them back on failure.
func (n *node) execute(ctx context.Context, t *journal.Transaction) (Result, error) {
	result := Result{Changed: true}
	for _, c := range t.Changes {
		result.Files = append(result.Files, c.Path)
	}
	e := &nodeEffects{node: n, journal: t.Journal, since: time.Now()}
	err := t.Forward(ctx, e)
	if err == nil {
		return result, nil
	}
	if t.Phase == journal.PhaseDone {
		return result, fmt.Errorf("everything is in place, but some leftovers could not be removed; run the command again: %w", explain(err))
	}
	return Result{}, n.putBack(ctx, t, err)
}

// putBack rolls back a failed run; reason is why it failed. An interrupt does not
// stop the rollback.
func (n *node) putBack(ctx context.Context, t *journal.Transaction, reason error) error {
	if ctx.Err() != nil {
		reason = fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
	e := &nodeEffects{node: n, journal: t.Journal, since: time.Now(), back: true}
	err := t.Back(context.WithoutCancel(ctx), e)
	if err != nil {
		return fmt.Errorf("%w\nputting everything back failed, too: %w\n%s", explain(reason), explain(err), t.PutBackAdvice())
	}
	return fmt.Errorf("%w; %w", explain(reason), ErrRolledBack)
}

// resume handles the journal of a killed run: it completes that run if the
// current command requests the same, and otherwise rolls everything back. done
// means that there is nothing more to do.
func (n *node) resume(ctx context.Context, op Operation, desired string) (result Result, done bool, err error) {
	j, err := n.interrupted()
	if err != nil {
		return Result{}, false, err
	}
	// A rollback depends on what was installed before the interrupted run.
	if n.state, err = n.readState(); err != nil {
		return Result{}, false, err
	}
	if j != nil {
		result, done, err = n.resumeJournal(ctx, j, op, desired)
		if err != nil || done {
			return result, done, err
		}
	}
	n.state, err = n.readState()
	return Result{}, false, err
}

func (n *node) resumeJournal(ctx context.Context, j *journal.Journal, op Operation, desired string) (Result, bool, error) {
	t := &journal.Transaction{Host: n.Host, Journal: j, After: n.opts.after}
	if !n.ofThisCluster(ctx, j.Cluster) {
		return Result{}, false, t.Forget(n.opts.Notef)
	}
	n.opts.Notef("an earlier %s of %s did not end (it was %s)", j.Operation, j.Started.Format(time.DateTime), j.Phase)
	n.connect()
	switch j.Phase {
	case journal.PhasePreparing:
		return Result{}, false, explain(t.Discard())
	case journal.PhaseDone:
		return Result{}, false, explain(t.Finish())
	case journal.PhaseApplying:
		if j.Operation == op && j.Desired == desired {
			result, err := n.execute(ctx, t)
			result.Resumed = true
			return result, true, err
		}
	}
	t.LeaveEdited = j.Phase == journal.PhaseRollback
	e := &nodeEffects{node: n, journal: j, since: time.Now(), back: true}
	err := progress.Step(n.opts.Progress, "Putting back what the earlier "+string(j.Operation)+" changed", func() (string, error) {
		return "", t.Back(ctx, &quietEffects{e})
	})
	for _, file := range t.Left {
		n.opts.Notef("%s %v: it is left as it is", file, journal.ErrEdited)
	}
	if err != nil {
		err = fmt.Errorf("putting back what the earlier %s changed failed: %w\n%s", j.Operation, explain(err), j.PutBackAdvice())
	}
	return Result{}, false, err
}
