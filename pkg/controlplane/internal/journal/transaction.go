// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// ErrEdited is returned when another program or a user has changed a file during a run.
var ErrEdited = errors.New("was changed by another program or user during the run")

// Transaction applies the changes of a journal, or rolls them back. Every method
// can be called again after a kill at any point: it recognizes completed changes by
// the files' fingerprints.
type Transaction struct {
	nodefs.Host
	*Journal
	// LeaveEdited is set if an earlier rollback attempt has reported the files that
	// another program or a person changed. This attempt leaves those files as they
	// are, lists them in Left, and finishes.
	LeaveEdited bool
	// Left lists the files that were left as they are.
	Left []string
	// After is called after every single effect; tests kill the process there.
	After func(point string)
}

func (t *Transaction) reached(point string, args ...any) {
	if t.After != nil {
		t.After(fmt.Sprintf(point, args...))
	}
}

func (t *Transaction) save(p Phase) error {
	t.Phase = p
	if err := writeJSON(t.Host, File, t.Journal); err != nil {
		return err
	}
	t.reached("journal %s", p)
	return nil
}

// Prepare stages all files: everything that needs disk space happens here. If it
// fails, nothing has changed, and it cleans up.
func (t *Transaction) Prepare() error {
	err := t.stage()
	if err != nil {
		err = errors.Join(err, t.Discard())
	}
	return err
}

func (t *Transaction) stage() error {
	if err := t.save(PhasePreparing); err != nil {
		return err
	}
	for _, d := range t.Dirs {
		if err := os.Mkdir(t.Path(d.Path), d.Mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return t.Strip(err)
		}
		t.reached("directory %s", d.Path)
	}
	for _, c := range t.Changes {
		if err := t.stageChange(c); err != nil {
			return err
		}
		t.reached("staged %s", c.Path)
	}
	return t.save(PhaseApplying)
}

// Effects are what a step does in addition to its file changes.
type Effects interface {
	// Making is called before the files of a step are put in place. It returns
	// whether the journal has gained information that must survive a kill.
	Making(ctx context.Context, step Step) (learned bool)
	// Made is called when the files of a step are in place, and returns when they
	// have taken effect.
	Made(ctx context.Context, step Step) error
	// Unmaking is called once, before the first step is rolled back.
	Unmaking()
	// Unmade is called when the files of a step have been restored.
	Unmade(ctx context.Context, step Step) error
}

// Forward applies all steps and calls their effects.
func (t *Transaction) Forward(ctx context.Context, e Effects) error {
	for _, step := range t.Steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if e.Making(ctx, step) {
			if err := t.save(t.Phase); err != nil {
				return fmt.Errorf("%s: %w", step, err)
			}
		}
		if err := t.apply(step); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
		if err := e.Made(ctx, step); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
		t.reached("step %s", step)
	}
	return t.commit()
}

// Back rolls back all steps in reverse order, as far as possible.
func (t *Transaction) Back(ctx context.Context, e Effects) error {
	if t.Phase != PhaseRollback {
		e.Unmaking()
	}
	if err := t.save(PhaseRollback); err != nil {
		// A rollback needs no disk space. If the process is killed now, the next
		// run finds a journal with the phase "applying", and can roll back from
		// that as well.
		t.Phase = PhaseRollback
	}
	var errs []error
	for _, step := range t.backward() {
		err := t.revert(step)
		if err != nil && (step == StepAPIServer || !errors.Is(err, ErrEdited)) {
			// The steps that follow depend on this one. kube-apiserver's manifest
			// may name files that they would remove, or they would restore a
			// manifest that names files which do not exist.
			return errors.Join(append(errs, fmt.Errorf("%s: %w", step, err))...)
		}
		if err == nil {
			err = e.Unmade(ctx, step)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", step, err))
		}
		t.reached("undone %s", step)
	}
	if err := errors.Join(errs...); err != nil {
		return err // keep the journal for another attempt
	}
	return t.Discard()
}

// backward returns the order of a rollback. kubeadm's configuration comes last in
// both directions, because it needs a working API server. An egress selector
// configuration that was replaced comes before kube-apiserver, which reads it when it
// starts with its old manifest.
func (t *Transaction) backward() []Step {
	steps := slices.DeleteFunc(slices.Clone(t.Steps), func(s Step) bool { return s == StepKubeadm })
	slices.Reverse(steps)
	replaced := slices.ContainsFunc(t.Changes, func(c Change) bool { return c.Step == StepEgress && c.Old != nodefs.Absent })
	server, egress := slices.Index(steps, StepAPIServer), slices.Index(steps, StepEgress)
	if replaced && server >= 0 && server < egress {
		steps = slices.Insert(slices.Delete(steps, egress, egress+1), server, StepEgress)
	}
	return append(steps, StepKubeadm)
}
