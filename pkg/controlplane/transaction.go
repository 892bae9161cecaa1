package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// errEdited is returned when somebody else has changed a file during a run.
var errEdited = errors.New("was changed by somebody else meanwhile")

// transaction makes the changes of a journal, or unmakes them. Every method may
// be called again after a kill at any point: what is done already is recognised
// by the files' fingerprints.
type transaction struct {
	host
	*journal
	// leaveEdited: an earlier attempt to go back has named the files that somebody
	// else has changed; this one leaves them and comes to an end. They are in left.
	leaveEdited bool
	left        []string
	// after is told about every single effect; tests kill the process there.
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

// prepare lays everything ready: all that needs room on a disk happens here. If
// it fails nothing has changed, and it cleans up.
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

// effects is what a step does besides its files.
type effects interface {
	// making is called before the files of a step take their places. It returns
	// whether the journal has learned something that must outlive a kill.
	making(ctx context.Context, step Step) (learned bool)
	// made is called when the files of a step are in place, and returns when they
	// have taken effect.
	made(ctx context.Context, step Step) error
	// unmaking is called once, before the first step is put back.
	unmaking()
	// unmade is called when the files of a step have been put back.
	unmade(ctx context.Context, step Step) error
}

// forward makes all steps, and what belongs to each.
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

// back unmakes all steps in the opposite order, as far as it can.
func (t *transaction) back(ctx context.Context, e effects) error {
	if t.Phase != phaseRollback {
		e.unmaking()
	}
	if err := t.save(phaseRollback); err != nil {
		// Going back needs no room; only another kill would now find a journal that
		// says "applying", from which it can go back as well.
		t.Phase = phaseRollback
	}
	var errs []error
	for _, step := range t.backward() {
		err := t.revert(step)
		if err != nil && (step == StepAPIServer || !errors.Is(err, errEdited)) {
			// What comes after stands on this step: kube-apiserver's manifest names
			// files that would go, or would come back and name files that are not there.
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
		return err // the journal stays, for another try
	}
	return t.discard()
}

// backward is the order of going back. kubeadm's configuration comes last either
// way: it takes an API server that works.
func (t *transaction) backward() []Step {
	steps := slices.DeleteFunc(slices.Clone(t.Steps), func(s Step) bool { return s == StepKubeadm })
	slices.Reverse(steps)
	return append(steps, StepKubeadm)
}
