// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// errEdited is returned when another program or a user has changed a file during a run.
var errEdited = errors.New("was changed by another program or user during the run")

// transaction applies the changes of a journal, or rolls them back. Every method
// can be called again after a kill at any point: it recognises completed changes by
// the files' fingerprints.
type transaction struct {
	host
	*journal
	// leaveEdited is set if an earlier rollback attempt has reported the files that
	// another program or a person changed. This attempt leaves those files as they
	// are, lists them in left, and finishes.
	leaveEdited bool
	left        []string
	// after is called after every single effect; tests kill the process there.
	after func(point string)
}

func (t *transaction) reached(point string, args ...any) {
	if t.after != nil {
		t.after(fmt.Sprintf(point, args...))
	}
}

func (t *transaction) save(p phase) error {
	t.Phase = p
	if err := writeJSON(t.host, journalFile, t.journal); err != nil {
		return err
	}
	t.reached("journal %s", p)
	return nil
}

// prepare stages all files: everything that needs disk space happens here. If it
// fails, nothing has changed, and it cleans up.
func (t *transaction) prepare() error {
	err := t.stage()
	if err != nil {
		err = errors.Join(err, t.discard())
	}
	return err
}

func (t *transaction) stage() error {
	if err := t.save(phasePreparing); err != nil {
		return err
	}
	for _, d := range t.Dirs {
		if err := os.Mkdir(t.path(d.Path), d.Mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return t.strip(err)
		}
		t.reached("directory %s", d.Path)
	}
	for _, c := range t.Changes {
		if err := t.stageChange(c); err != nil {
			return err
		}
		t.reached("staged %s", c.Path)
	}
	return t.save(phaseApplying)
}

// effects are what a step does in addition to its file changes.
type effects interface {
	// making is called before the files of a step are put in place. It returns
	// whether the journal has gained information that must survive a kill.
	making(ctx context.Context, step Step) (learned bool)
	// made is called when the files of a step are in place, and returns when they
	// have taken effect.
	made(ctx context.Context, step Step) error
	// unmaking is called once, before the first step is rolled back.
	unmaking()
	// unmade is called when the files of a step have been restored.
	unmade(ctx context.Context, step Step) error
}

// forward applies all steps and calls their effects.
func (t *transaction) forward(ctx context.Context, e effects) error {
	for _, step := range t.Steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if e.making(ctx, step) {
			if err := t.save(t.Phase); err != nil {
				return fmt.Errorf("%s: %w", step, err)
			}
		}
		if err := t.apply(step); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
		if err := e.made(ctx, step); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
		t.reached("step %s", step)
	}
	return t.commit()
}

// back rolls back all steps in reverse order, as far as possible.
func (t *transaction) back(ctx context.Context, e effects) error {
	if t.Phase != phaseRollback {
		e.unmaking()
	}
	if err := t.save(phaseRollback); err != nil {
		// A rollback needs no disk space. If the process is killed now, the next
		// run finds a journal with the phase "applying", and can roll back from
		// that as well.
		t.Phase = phaseRollback
	}
	var errs []error
	for _, step := range t.backward() {
		err := t.revert(step)
		if err != nil && (step == StepAPIServer || !errors.Is(err, errEdited)) {
			// The steps that follow depend on this one. kube-apiserver's manifest
			// may name files that they would remove, or they would restore a
			// manifest that names files which do not exist.
			return errors.Join(append(errs, fmt.Errorf("%s: %w", step, err))...)
		}
		if err == nil {
			err = e.unmade(ctx, step)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", step, err))
		}
		t.reached("undone %s", step)
	}
	if err := errors.Join(errs...); err != nil {
		return err // keep the journal for another attempt
	}
	return t.discard()
}

// backward returns the order of a rollback. kubeadm's configuration comes last in
// both directions, because it needs a working API server.
func (t *transaction) backward() []Step {
	steps := slices.DeleteFunc(slices.Clone(t.Steps), func(s Step) bool { return s == StepKubeadm })
	slices.Reverse(steps)
	return append(steps, StepKubeadm)
}
