package install

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// UninstallOptions say how to uninstall. The zero value deletes and does not wait.
type UninstallOptions struct {
	// DryRun asks the API server what would happen, and changes nothing.
	DryRun bool
	// Wait waits until all is gone, Pods included, for at most Timeout.
	Wait bool
	// Timeout of all waiting; 0 means DefaultTimeout.
	Timeout time.Duration
	// Progress is told what happens; nil means nobody is.
	Progress cluster.Progress
}

// Uninstall deletes what Apply has made in the cluster behind cfg: what the
// inventory lists and whatever else fairlead has applied: admission policies, then
// workloads, then the rest. What
// somebody else made stays, and so does a namespace that holds such a thing.
//
// The errors are as those of Apply; calling it again completes the work. Without
// anything installed the Result has no objects.
func Uninstall(ctx context.Context, cfg *rest.Config, o UninstallOptions) (*Result, error) {
	common := Options{Timeout: o.Timeout, Progress: o.Progress}
	common.complete()
	o.Timeout, o.Progress = common.Timeout, common.Progress
	result := &Result{DryRun: o.DryRun}
	c, err := newClient(cfg)
	if err != nil {
		return result, err
	}
	defer func() { result.Warnings = append(result.Warnings, c.warnings.list()...) }()
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, errTimeout)
	defer cancel()
	if o.DryRun {
		u, err := c.planUninstall(ctx, result)
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
	err = c.locked(ctx, o.Progress, func(ctx context.Context) error { return c.uninstall(ctx, o, result) })
	if err != nil {
		return result, err
	}
	return result, c.deleteLock(ctx)
}

// removal is what an Uninstall will do.
type removal struct {
	inventory *inventory
	changes   []change
}

func (ch change) note() string {
	if ch.action == Released {
		return "kept: " + ch.why
	}
	return ""
}

func (c *client) planUninstall(ctx context.Context, result *Result) (*removal, error) {
	inv, err := c.readInventory(ctx)
	if err != nil {
		return nil, err
	}
	found, err := c.scan(ctx, result)
	if err != nil {
		return nil, err
	}
	u := &removal{inventory: inv}
	var problems []Problem
	for _, e := range reversed(union(inv.Objects, found, sameObject)) {
		ch, problem, err := c.planDelete(ctx, e)
		if err != nil {
			return nil, err
		}
		if problem != nil {
			problems = append(problems, *problem)
		}
		if ch != nil {
			u.changes = append(u.changes, *ch)
		}
	}
	return u, c.blocked(ctx, problems, nil)
}

// uninstall does the work. The lock is held.
func (c *client) uninstall(ctx context.Context, o UninstallOptions, result *Result) error {
	var u *removal
	err := cluster.Step(o.Progress, "Looking for what is installed", func() (string, error) {
		var err error
		if u, err = c.planUninstall(ctx, result); err != nil {
			return "", err
		}
		return cluster.Count(len(u.changes), "object"), nil
	})
	if err != nil {
		return err
	}
	if err := c.removeInPhases(ctx, u.changes, o, result); err != nil {
		return err
	}
	if err := c.deleteLeases(ctx, u.inventory.Leases, o, result); err != nil {
		return err
	}
	return c.deleteInventory(ctx, u.inventory)
}

// removeInPhases ends what sends Pods to the second scheduler before it ends the
// scheduler: Pods made between would wait for ever. Programs need their rights
// until they have ended, to give up their Leases for example.
func (c *client) removeInPhases(ctx context.Context, changes []change, o UninstallOptions, result *Result) error {
	for _, part := range []struct {
		title string
		phase phase
	}{{"Deleting admission policies", admission}, {"Deleting workloads", workloads}, {"Deleting everything else", others}} {
		var now []change
		for _, ch := range changes {
			if phaseOf(ch.Kind) == part.phase {
				now = append(now, ch)
			}
		}
		if len(now) == 0 {
			continue
		}
		err := cluster.Step(o.Progress, part.title, func() (string, error) { return c.removeAll(ctx, now, o, result) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *client) removeAll(ctx context.Context, changes []change, o UninstallOptions, result *Result) (string, error) {
	for _, ch := range changes {
		o.Progress.Detail("%s", ch.Ref)
		if err := c.removeChange(ctx, ch); err != nil {
			return "", err
		}
		result.add(ch, ch.note())
	}
	if !o.Wait {
		return cluster.Count(len(changes), "object"), nil
	}
	for _, ch := range changes {
		if ch.action != Deleted {
			continue
		}
		if err := c.waitGone(ctx, ch, o.Progress); err != nil {
			return "", err
		}
	}
	return cluster.Count(len(changes), "object"), nil
}

// waitGone waits for an object's end, and that of its Pods.
func (c *client) waitGone(ctx context.Context, ch change, progress cluster.Progress) error {
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
			progress.Detail("%s", left)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not gone: %s (%w)\nrun it again to wait on", ch.Ref, left, context.Cause(ctx))
		case <-time.After(pollInterval):
		}
	}
}

func (c *client) whatIsLeft(ctx context.Context, ch change, selector string) (string, error) {
	live, err := c.get(ctx, ch.Ref)
	switch {
	case err == nil && live.GetUID() == ch.live.GetUID():
		return fmt.Sprintf("%s is being deleted (finalizers: %v)", ch.Ref, live.GetFinalizers()), nil
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

// deleteLock deletes the Lease that locked left, unless somebody waits for it.
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
