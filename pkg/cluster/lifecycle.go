// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// Driver has the steps of Up and Down that differ between providers. A driver handles
// one cluster for one command; [Lifecycle] calls its methods in the right order.
type Driver interface {
	// CheckMachine fails if this machine cannot run the cluster. It is called before
	// the cluster is locked.
	CheckMachine(ctx context.Context) error
	// Load reads the state of an existing cluster; see [Home.ReadState].
	Load() error
	// Plan decides everything about a new cluster and creates nothing.
	Plan(ctx context.Context) error
	// Save stores the state.
	Save() error
	// Create creates the planned cluster and stores its bundle and the administrator's
	// kubeconfig. It returns when all parts are ready. The cluster's directory exists.
	Create(ctx context.Context) error
	// Resume starts the loaded cluster, or finds it running. It fails if options would
	// change the cluster.
	Resume(ctx context.Context) error
	// CollectLogs writes logs of a failed Create to [Home.LogDir], unless they are there
	// already, and may return a hint for the user. After an interrupt it must not take
	// long.
	CollectLogs(interrupted bool) (hint string, err error)
	// Left reports whether anything is left of the cluster. The state may be lost.
	Left() (bool, error)
	// Remove removes all of the cluster but its [Home.FailedLogs]. The state may be lost.
	Remove(ctx context.Context) error
	// ServerURL is the API server's URL, of a loaded cluster.
	ServerURL() string
}

// Lifecycle brings a cluster up and down with a provider's driver.
type Lifecycle struct {
	// Driver has the provider's steps.
	Driver Driver
	// Provider is the provider's name.
	Provider string
	// Home is where the cluster's state is.
	Home Home
	// Record is the part of the driver's state that all providers store.
	Record *Record
	// MinFree is the number of bytes that a cluster needs on the disk of Home.
	MinFree uint64
	// Removing is the title of Down's step, such as "Stopping and removing fairlead-dev".
	Removing string
	// Kept is what a failed Up keeps next to the directory if the user wants to keep it,
	// such as " and its containers".
	Kept string
	// Logs names what CollectLogs writes, such as "its logs".
	Logs string
}

// Up creates a cluster, starts a stopped one, or finds it running; see [Provider]. If it
// fails or ctx ends, it removes what it created (unless Retain is set), but keeps the logs.
// It fails with ErrBusy if another command works on the cluster, and with ErrIncomplete if an
// earlier Up was killed before it finished.
func (l *Lifecycle) Up(ctx context.Context, o UpOptions) error {
	if o.Progress == nil {
		o.Progress = progress.Silent
	}
	if err := CheckBundle(o.Bundle); err != nil {
		return err
	}
	if err := CheckFree(l.Home.Dir, l.MinFree, OtherDisk); err != nil {
		return err
	}
	if err := CheckKubeconfig(o.Kubeconfig); err != nil {
		return err
	}
	if err := l.Driver.CheckMachine(ctx); err != nil {
		return err
	}
	unlock, err := l.Home.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := l.Home.CheckProvider(l.Provider); err != nil {
		return err
	}
	if err := l.createOrResume(ctx, o); err != nil {
		return err
	}
	return l.Home.AddContext(o.Progress, o.Kubeconfig, &l.Record.Kubeconfigs, l.Driver.Save)
}

func (l *Lifecycle) createOrResume(ctx context.Context, o UpOptions) error {
	err := l.Driver.Load()
	switch {
	case errors.Is(err, ErrNotFound):
		if err := l.Driver.Plan(ctx); err != nil {
			return errors.Join(err, os.Remove(l.Home.LockFile()))
		}
		if err := l.create(ctx); err != nil {
			return l.abandon(ctx, o.Retain, err)
		}
		return nil
	case err != nil:
		return err
	case l.Record.Phase != PhaseReady:
		return l.Home.Incomplete("its creation has not ended")
	}
	return l.Driver.Resume(ctx)
}

// create creates a new cluster according to the plan.
func (l *Lifecycle) create(ctx context.Context) error {
	if err := l.Home.Claim(l.Provider); err != nil {
		return err
	}
	if err := l.Driver.Save(); err != nil {
		return err
	}
	if err := l.Driver.Create(ctx); err != nil {
		return err
	}
	l.Record.Phase = PhaseReady
	return l.Driver.Save()
}

// cleanupTime bounds the cleanup after an interrupt or a failure.
const cleanupTime = 60 * time.Second

// CleanupContext returns the context for the cleanup after ctx ended or a step failed.
func CleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
}

// Interrupted returns ErrInterrupted instead of a failure that the end of ctx caused.
func Interrupted(ctx context.Context, cause error) error {
	if cause != nil && ctx.Err() != nil {
		return ErrInterrupted
	}
	return cause
}

// abandon undoes a failed create and adds to its error what the user needs to know.
func (l *Lifecycle) abandon(ctx context.Context, retain bool, cause error) error {
	interrupted := ctx.Err() != nil
	cause = Interrupted(ctx, cause)
	ctx, cancel := CleanupContext(ctx)
	defer cancel()
	down := fmt.Sprintf("\"fairlead down --name %s\"", l.Home.Name)
	hint, err := l.Driver.CollectLogs(interrupted)
	if hint != "" {
		cause = fmt.Errorf("%w\n%s", cause, hint)
	}
	if retain {
		return errors.Join(fmt.Errorf("%w\nkept for inspection: %s%s (logs in %s); remove it with %s", cause, l.Home.Dir, l.Kept, l.Home.LogDir(), down), err)
	}
	logs, err := l.Home.SaveLogs() // the cause is more important than logs that could not be collected
	// Remove everything else even if the logs could not be saved.
	if err = errors.Join(err, l.Driver.Remove(ctx), os.Remove(l.Home.LockFile())); err != nil {
		return fmt.Errorf("%w\ncleaning up failed too: %w: run %s", cause, err, down)
	}
	if logs == "" {
		return cause
	}
	return fmt.Errorf("%w\nremoved what was made; %s are in %s", cause, l.Logs, logs)
}

// Down removes a cluster and its context. It needs no readable state, so it also removes
// what a killed command left behind. It returns ErrNotFound if there was nothing at all.
func (l *Lifecycle) Down(ctx context.Context, o DownOptions) error {
	if o.Progress == nil {
		o.Progress = progress.Silent
	}
	unlock, err := l.Home.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	defer l.Home.RemoveTraces()
	// Read the state before deleting it. For a cluster without readable state, remove any
	// context that has its name.
	server := ""
	if l.Driver.Load() == nil {
		server = l.Driver.ServerURL()
	}
	previous := l.Home.PreviousContext()
	found, err := l.Driver.Left()
	if err != nil {
		return err
	}
	if found {
		err := progress.Step(o.Progress, l.Removing, func() (string, error) {
			return "", errors.Join(l.Driver.Remove(ctx), os.RemoveAll(l.Home.FailedLogs()))
		})
		if err != nil {
			return err
		}
	}
	hadContext, err := l.Home.RemoveContexts(server, previous, append(l.Record.Kubeconfigs, o.Kubeconfig))
	if err == nil && !found && !hadContext {
		err = fmt.Errorf("%w: %q: nothing to remove", ErrNotFound, l.Home.Name)
	}
	return err
}
