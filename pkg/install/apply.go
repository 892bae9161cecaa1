// SPDX-License-Identifier: Apache-2.0

package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// Options configure Apply. The zero value applies, prunes and does not wait.
type Options struct {
	// DryRun sends server-side dry runs, and changes nothing.
	DryRun bool
	// Force takes ownership of conflicting fields and of objects that fairlead did
	// not create, and deletes and recreates objects with immutable changes.
	Force bool
	// Wait waits until workloads are rolled out, for at most Timeout.
	Wait bool
	// Timeout bounds the waits for other runs and for rollouts; 0 means
	// DefaultTimeout.
	Timeout time.Duration
	// Leases are those that the workloads create themselves; Uninstall deletes them.
	Leases []Lease
	// Keep are objects, of any version, that stay installed although they are not among the
	// objects to apply. Default: none.
	Keep []Ref
	// KeepOthers keeps all objects that are not among the objects to apply.
	KeepOthers bool
	// Confirm is called when the run has the lock, before it looks at what to change: it may have waited for long. An error
	// ends the run, which has changed nothing then. nil confirms.
	Confirm func(context.Context) error
	// Recompute returns the objects to apply when the run has the lock. Those that were passed may depend on what another run has
	// changed while this one waited, such as the certificates in Secrets. nil applies those that were passed.
	Recompute func(context.Context) ([]component.Object, error)
	// KeepTunnel blocks a run that would cut the tunnel while kube-apiserver uses it: what
	// Preflight reports as FindingInUse, but about the changes that are made.
	KeepTunnel bool
	// Party is the command that installs; the zero value is `fairlead install`.
	Party Party
	// Progress receives the steps of the run; nil discards them.
	Progress progress.Reporter

	timing *timing // nil is usual
}

// DefaultTimeout leaves time for slow machines to pull images and start programs.
const DefaultTimeout = 5 * time.Minute

func (o *Options) complete() {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Progress == nil {
		o.Progress = progress.Silent
	}
	if o.timing == nil {
		o.timing = &usual
	}
}

// Result is what a run changed, or with DryRun would change.
type Result struct {
	// DryRun is true if nothing was changed.
	DryRun bool `json:"dryRun,omitempty"`
	// Objects are in the order in which they were processed.
	Objects []ObjectResult `json:"objects"`
	// Warnings are those that the API server returned.
	Warnings []string `json:"warnings,omitempty"`
}

// ObjectResult is the outcome for one object.
type ObjectResult struct {
	Ref    `json:",inline"`
	Action Action `json:"action"`
	// Note is the reason for the action, if it is not obvious.
	Note string `json:"note,omitempty"`
}

// Count counts the objects with one of these actions.
func (r *Result) Count(actions ...Action) int {
	n := 0
	for _, o := range r.Objects {
		for _, a := range actions {
			if o.Action == a {
				n++
			}
		}
	}
	return n
}

func (r *Result) add(ch change, note string) {
	r.Objects = append(r.Objects, ObjectResult{Ref: ch.Ref, Action: ch.action, Note: note})
}

// Apply makes the cluster behind cfg contain these objects. It prunes objects that
// an earlier Apply installed and that are not among these. It applies the objects in
// the order that their kinds require.
//
// A *BlockedError means that nothing has been changed. After any other error, as
// after a crash, call it again to complete the work. A *RolloutError means that all
// objects are applied, but not all workloads are ready. The Result holds what was
// done until then; it is never nil.
//
// Also without Wait, it creates an APIService only when its Service has a ready endpoint.
func Apply(ctx context.Context, cfg *rest.Config, objects []component.Object, o Options) (*Result, error) {
	o.complete()
	result := &Result{DryRun: o.DryRun}
	manifests, err := sorted(objects)
	if err != nil {
		return result, err
	}
	c, err := newClient(cfg, o.Party)
	if err != nil {
		return result, err
	}
	c.keep, c.keepOthers, c.timing = o.Keep, o.KeepOthers, *o.timing
	defer func() { result.Warnings = append(result.Warnings, c.warnings.list()...) }()
	if o.DryRun {
		return result, c.dryRun(ctx, manifests, o, result)
	}
	limited, cancel := context.WithTimeoutCause(ctx, o.Timeout, errTimeout)
	defer cancel()
	err = progress.Step(o.Progress, "Applying "+progress.Count(len(manifests), "object"), func() (string, error) {
		if err := c.mayLock(limited, manifests); err != nil {
			return "", err
		}
		err := c.locked(limited, o.Progress, confirmed(o.Confirm, func(ctx context.Context) error {
			if o.Recompute != nil {
				objects, err := o.Recompute(ctx)
				if err != nil {
					return err
				}
				if manifests, err = sorted(objects); err != nil {
					return err
				}
			}
			return c.install(ctx, manifests, o, result)
		}))
		return result.summary(), err
	})
	if err != nil || !o.Wait {
		return result, err
	}
	return result, c.waitRollouts(limited, manifests, o)
}

var errTimeout = errors.New("the time limit (--timeout) has passed")

// dryRun fills in the result with what Apply would do.
func (c *client) dryRun(ctx context.Context, manifests []*unstructured.Unstructured, o Options, result *Result) error {
	return progress.Step(o.Progress, "Asking the API server about "+progress.Count(len(manifests), "object"), func() (string, error) {
		inv, err := c.readInventory(ctx)
		if err != nil {
			return "", err
		}
		p, err := c.makePlan(ctx, manifests, inv, o.Force, true)
		if err != nil {
			return "", err
		}
		if err := c.mayExecute(ctx, p, manifests, o); err != nil {
			return "", err
		}
		for _, ch := range append(p.changes, p.prunes...) {
			result.add(ch, "")
		}
		return result.summary(), nil
	})
}

// install does the work. The caller holds the lock.
func (c *client) install(ctx context.Context, manifests []*unstructured.Unstructured, o Options, result *Result) error {
	inv, err := c.readInventory(ctx)
	if err != nil {
		return err
	}
	o.Progress.Detail("asking the API server what would change")
	p, err := c.makePlan(ctx, manifests, inv, o.Force, true)
	if err != nil {
		return err
	}
	if err := c.mayExecute(ctx, p, manifests, o); err != nil {
		return err
	}
	var entries []Entry
	for _, ch := range p.changes {
		entries = append(entries, ch.entry)
	}
	// List the objects of both bundles until all of them are processed.
	during := inv.with(union(entries, inv.Objects, sameObject), union(o.Leases, inv.Leases, sameLease))
	if err := c.writeInventory(ctx, during); err != nil {
		return err
	}
	if err := c.trustFirst(ctx, p.changes, o); err != nil {
		return err
	}
	registers := func(ch change) bool { return ch.Kind == apiServiceKind }
	if err := c.installChanges(ctx, p.changes, entries, o, result, func(ch change) bool { return !registers(ch) }); err != nil {
		return err
	}
	if err := c.prune(ctx, p.prunes, o, result); err != nil {
		return err
	}
	// Last, because they wait for what may never become ready.
	if err := c.installChanges(ctx, p.changes, entries, o, result, registers); err != nil {
		return err
	}
	// The older bundle's Leases stay in the inventory: Uninstall deletes them.
	return c.writeInventory(ctx, during.with(union(entries, p.kept, sameObject), during.Leases))
}

// installChanges applies the changes that are of this turn, and notes the UIDs in their entries.
func (c *client) installChanges(ctx context.Context, changes []change, entries []Entry, o Options, result *Result, now func(change) bool) error {
	for i, ch := range changes {
		if !now(ch) {
			continue
		}
		o.Progress.Detail("%s (%d of %d)", ch.Ref, i+1, len(changes))
		var err error
		if entries[i].UID, err = c.installChange(ctx, ch, o); err != nil {
			return err
		}
		result.add(ch, "")
	}
	return nil
}

// installChange applies one change, after what it waits for and before what waits for it.
func (c *client) installChange(ctx context.Context, ch change, o Options) (types.UID, error) {
	if err := c.awaitBackend(ctx, ch, o.Progress); err != nil {
		return "", fmt.Errorf("apply %s: %w", ch.Ref, err)
	}
	uid, err := c.applyChange(ctx, ch, o.Force)
	if err != nil {
		return "", fmt.Errorf("apply %s: %w", ch.Ref, err)
	}
	if ch.Kind == definitionKind {
		return uid, c.awaitEstablished(ctx, ch.Ref)
	}
	return uid, nil
}

// prune deletes what the bundle no longer has. It deletes a scheduler only after no
// policy assigns Pods to it any more.
func (c *client) prune(ctx context.Context, prunes []change, o Options, result *Result) error {
	for i, ch := range prunes {
		if i > 0 && phaseOf(ch.Kind) != admission && phaseOf(prunes[i-1].Kind) == admission {
			if err := c.awaitUnassigned(ctx, prunes[:i], result, o.Progress); err != nil {
				return err
			}
		}
		o.Progress.Detail("deleting %s, which the bundle no longer has", ch.Ref)
		if err := c.removeChange(ctx, ch); err != nil {
			return err
		}
		result.add(ch, cmp.Or(ch.note(), "the bundle no longer has it"))
	}
	c.warnOfWaiting(ctx, prunes, result)
	return nil
}

// applyChange applies one change and returns the object's UID.
func (c *client) applyChange(ctx context.Context, ch change, force bool) (types.UID, error) {
	switch ch.action {
	case Unchanged:
		return ch.live.GetUID(), nil
	case Adopted:
		if err := c.handOver(ctx, ch.live); err != nil {
			return "", err
		}
	case Recreated:
		if err := c.removeAndWait(ctx, ch.live); err != nil {
			return "", err
		}
	}
	out, err := c.apply(ctx, ch.want, force, false)
	if err != nil {
		return "", err
	}
	return out.GetUID(), nil
}

func (c *client) handOver(ctx context.Context, live *unstructured.Unstructured) error {
	patch, err := handover(live, c.party.FieldManager())
	if err != nil || patch == nil {
		return err
	}
	res, err := c.resource(RefOf(live))
	if err != nil {
		return err
	}
	_, err = res.Patch(ctx, live.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: c.party.FieldManager()})
	return err
}

// removeAndWait deletes an object and waits until it is gone, because an object of
// the same name cannot be created before.
func (c *client) removeAndWait(ctx context.Context, live *unstructured.Unstructured) error {
	if err := c.remove(ctx, live, false); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return wait.PollUntilContextCancel(ctx, c.timing.poll, true, func(ctx context.Context) (bool, error) {
		_, err := c.get(ctx, RefOf(live))
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
}

// removeChange deletes an object, or releases it.
func (c *client) removeChange(ctx context.Context, ch change) error {
	var err error
	if ch.action == Released {
		err = c.release(ctx, ch.Ref)
	} else {
		err = c.remove(ctx, ch.live, false)
	}
	// A conflict means that the object with this UID is gone and another one has its
	// name.
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete %s: %w", ch.Ref, err)
}

// release gives up ownership of all fields. Applying an object without fields
// removes those that no other field manager owns.
func (c *client) release(ctx context.Context, r Ref) error {
	empty := &unstructured.Unstructured{}
	empty.SetGroupVersionKind(r.gvk())
	empty.SetNamespace(r.Namespace)
	empty.SetName(r.Name)
	_, err := c.apply(ctx, empty, false, false)
	return err
}

func (r *Result) summary() string {
	text := ""
	for _, a := range []Action{Created, Configured, Adopted, Recreated, Deleted, Released, Unchanged} {
		if n := r.Count(a); n > 0 {
			if text != "" {
				text += ", "
			}
			text += fmt.Sprintf("%d %s", n, a)
		}
	}
	return text
}

// Applied is the action of the objects that Offline lists.
const Applied Action = "applied"

// Offline lists what Apply would apply, in its order, without connecting to a
// cluster.
func Offline(objects []component.Object) (*Result, error) {
	manifests, err := sorted(objects)
	if err != nil {
		return nil, err
	}
	result := &Result{DryRun: true}
	for _, m := range manifests {
		result.Objects = append(result.Objects, ObjectResult{Ref: RefOf(m), Action: Applied})
	}
	return result, nil
}
