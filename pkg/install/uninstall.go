// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// UninstallOptions configure Uninstall. The zero value deletes and does not wait.
type UninstallOptions struct {
	// DryRun sends server-side dry runs, and changes nothing.
	DryRun bool
	// Wait waits until everything is gone, including Pods, for at most Timeout.
	Wait bool
	// Timeout bounds all waits; 0 means DefaultTimeout.
	Timeout time.Duration
	// Party is the command that installed; the zero value is `fairlead install`.
	Party Party
	// KeepDefinitions keeps CustomResourceDefinitions, and so the objects of their kinds.
	KeepDefinitions bool
	// Confirm is called when the run has the lock, as in Options.
	Confirm func(context.Context) error
	// KeepTunnel blocks a run that would delete agents, or what they need, while kube-apiserver uses
	// the tunnel.
	KeepTunnel bool
	// Objects are looked at besides those in the inventory, instead of all objects in the cluster;
	// namespaces stay then. Set it, if only to an empty list, for a user who may not list everything.
	Objects []component.Object
	// Progress receives the steps of the run; nil discards them.
	Progress progress.Reporter

	timing *timing // nil is usual
}

// Uninstall deletes what Apply has created in the cluster behind cfg: the objects
// in the inventory and any other object that fairlead has applied. It deletes
// APIServices, then admission policies, then workloads, of these the tunnel's agents last, then
// the rest. It keeps objects that fairlead did not create, and a namespace that contains such an
// object.
//
// While another run holds the lock, nothing is deleted; the error is a *LockedError then.
//
// Its errors are like those of Apply; call it again to complete the work. If
// nothing is installed, the Result has no objects.
func Uninstall(ctx context.Context, cfg *rest.Config, o UninstallOptions) (*Result, error) {
	common := Options{Timeout: o.Timeout, Progress: o.Progress, timing: o.timing}
	common.complete()
	o.Timeout, o.Progress = common.Timeout, common.Progress
	result := &Result{DryRun: o.DryRun}
	c, err := newClient(cfg, o.Party)
	if err != nil {
		return result, err
	}
	c.timing = *common.timing
	defer func() { result.Warnings = append(result.Warnings, c.warnings.list()...) }()
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, errTimeout)
	defer cancel()
	if o.DryRun {
		u, err := c.planUninstall(ctx, o, result)
		if err != nil {
			return result, err
		}
		for _, ch := range u.changes {
			result.add(ch, ch.note())
		}
		return result, c.deleteLeases(ctx, u.inventory.Leases, o, result)
	}
	if err := c.mayLock(ctx, nil); err != nil {
		return result, err
	}
	err = c.locked(ctx, o.Progress, confirmed(o.Confirm, func(ctx context.Context) error { return c.uninstall(ctx, o, result) }))
	if err != nil {
		return result, err
	}
	return result, c.deleteLock(ctx)
}

// removal is what a run of Uninstall will delete.
type removal struct {
	inventory *inventory
	changes   []change
	// leaving are workloads that an earlier run or a user has deleted, and that are not gone.
	leaving []change
}

func (ch change) note() string {
	if ch.action == Released {
		return "kept: " + ch.why
	}
	return ""
}

func (c *client) planUninstall(ctx context.Context, o UninstallOptions, result *Result) (*removal, error) {
	inv, err := c.readInventory(ctx)
	if err != nil {
		return nil, err
	}
	var found []Entry
	if c.keepNamespaces = o.Objects != nil; c.keepNamespaces {
		found = entriesOf(o.Objects)
	} else if found, err = c.scan(ctx, result); err != nil {
		return nil, err
	}
	entries := union(inv.Objects, found, sameObject)
	made, err := c.made(ctx, entries)
	if err != nil {
		return nil, err
	}
	u := &removal{inventory: inv}
	var problems []Problem
	for _, e := range reversed(union(entries, made, sameObject)) {
		if o.KeepDefinitions && e.Kind == definitionKind {
			continue
		}
		ch, problem, err := c.planDelete(ctx, e)
		if err != nil {
			return nil, err
		}
		if problem != nil {
			problems = append(problems, *problem)
		}
		if ch != nil {
			u.changes = append(u.changes, *ch)
			continue
		}
		if u.leaving, err = c.addLeaving(ctx, u.leaving, e); err != nil {
			return nil, err
		}
	}
	return u, c.blocked(ctx, problems, nil)
}

// addLeaving appends the change for a workload that is being deleted already.
func (c *client) addLeaving(ctx context.Context, to []change, e Entry) ([]change, error) {
	if phaseOf(e.Kind) != workloads {
		return to, nil
	}
	live, err := c.get(ctx, e.Ref)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err), apierrors.IsForbidden(err):
		return to, nil
	case err != nil:
		return to, fmt.Errorf("%s: %w", e.Ref, err)
	case live.GetDeletionTimestamp() == nil || !c.ours(live, e) || c.sharedWith(live) != "":
		return to, nil
	}
	return append(to, change{Ref: e.Ref, action: Deleted, live: live, entry: e}), nil
}

// uninstall does the work. The caller holds the lock.
func (c *client) uninstall(ctx context.Context, o UninstallOptions, result *Result) error {
	var u *removal
	err := progress.Step(o.Progress, "Looking for what is installed", func() (string, error) {
		var err error
		if u, err = c.planUninstall(ctx, o, result); err != nil {
			return "", err
		}
		if err := c.mayRemove(ctx, u, o); err != nil {
			return "", err
		}
		return progress.Count(len(u.changes), "object"), nil
	})
	if err != nil {
		return err
	}
	if err := c.removeInPhases(ctx, u, o, result); err != nil {
		return err
	}
	c.warnOfWaiting(ctx, u.changes, result)
	if err := c.deleteLeases(ctx, u.inventory.Leases, o, result); err != nil {
		return err
	}
	return c.deleteInventory(ctx, u.inventory)
}

// removeInPhases deletes the policies that assign Pods to the second scheduler
// before it deletes the scheduler: Pods created in between would stay Pending for
// ever. It deletes APIServices before everything else, and agents after all other
// workloads, whose logs and webhooks need them. Programs need their RBAC permissions until they
// have exited, for example to release their Leases.
func (c *client) removeInPhases(ctx context.Context, u *removal, o UninstallOptions, result *Result) error {
	for _, part := range []struct {
		title string
		phase phase
	}{
		{"Deleting APIServices", registration}, {"Deleting admission policies", admission}, {"Deleting workloads", workloads},
		{"Deleting agents of the tunnel", agents}, {"Deleting everything else", others},
	} {
		now, leaving := inPhase(u.changes, part.phase), inPhase(u.leaving, part.phase)
		if len(now)+len(leaving) == 0 {
			continue
		}
		err := progress.Step(o.Progress, part.title, func() (string, error) {
			text, err := c.removeAll(ctx, now, leaving, o, result)
			if err == nil {
				err = c.awaitUnassigned(ctx, now, result, o.Progress)
			}
			return text, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func inPhase(changes []change, p phase) (out []change) {
	for _, ch := range changes {
		if ch.phase() == p {
			out = append(out, ch)
		}
	}
	return out
}

// removeAll deletes what is to be deleted now, and waits for that and for what is leaving.
func (c *client) removeAll(ctx context.Context, changes, leaving []change, o UninstallOptions, result *Result) (string, error) {
	for _, ch := range changes {
		o.Progress.Detail("%s", ch.Ref)
		if err := c.removeChange(ctx, ch); err != nil {
			return "", err
		}
		result.add(ch, ch.note())
	}
	if !o.Wait {
		return progress.Count(len(changes), "object"), nil
	}
	for _, ch := range slices.Concat(changes, leaving) {
		if ch.action != Deleted {
			continue
		}
		if err := c.waitGone(ctx, ch, o.Progress); err != nil {
			return "", err
		}
	}
	return progress.Count(len(changes), "object"), nil
}

// waitGone waits until an object and its Pods are gone.
func (c *client) waitGone(ctx context.Context, ch change, reporter progress.Reporter) error {
	selector := selectorOf(ch.live)
	for {
		left, err := c.whatIsLeft(ctx, ch, selector)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("wait for the end of %s: %w", ch.Ref, err)
		}
		if err == nil && left == "" {
			return nil
		}
		if left != "" {
			reporter.Detail("%s", left)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not gone: %s (%w)\nrun it again to wait on", ch.Ref, left, context.Cause(ctx))
		case <-time.After(c.timing.poll):
		}
	}
}

func (c *client) whatIsLeft(ctx context.Context, ch change, selector string) (string, error) {
	live, err := c.get(ctx, ch.Ref)
	switch {
	case err == nil && live.GetUID() == ch.live.GetUID():
		return fmt.Sprintf("%s is being deleted (%s)", ch.Ref, heldBy(live)), nil
	case err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err):
		return "", err
	case selector == "":
		return "", nil
	}
	pods, err := c.kube.CoreV1().Pods(ch.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return "", err
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; metav1.GetControllerOf(pod) != nil {
			return fmt.Sprintf("Pod %s on node %q has not ended", pod.Name, pod.Spec.NodeName), nil
		}
	}
	return "", nil
}

// deleteLock deletes the Lease that locked has left behind, unless another run
// holds it.
func (c *client) deleteLock(ctx context.Context) error {
	leases := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem)
	lease, err := leases.Get(ctx, LockName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete the lock: %w", err)
	}
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		return nil
	}
	err = leases.Delete(ctx, LockName, metav1.DeleteOptions{Preconditions: metav1.NewRVDeletionPrecondition(lease.ResourceVersion).Preconditions})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete the lock: %w", err)
	}
	return nil
}
