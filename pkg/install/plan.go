package install

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Action is what happens, or would happen, to an object.
type Action string

// The actions.
const (
	// Created: there was none.
	Created Action = "created"
	// Configured: it was changed.
	Configured Action = "configured"
	// Unchanged: it already was what the bundle says, and ours.
	Unchanged Action = "unchanged"
	// Adopted: there was one of somebody else; now fairlead owns it.
	Adopted Action = "adopted"
	// Recreated: it was deleted and made again, as its change does not go otherwise.
	Recreated Action = "recreated"
	// Deleted: the bundle no longer has it, or all is uninstalled.
	Deleted Action = "deleted"
	// Released: fairlead let go of it, because it is not only fairlead's.
	Released Action = "released"
)

// change is what is to be done to one object.
type change struct {
	Ref
	action Action
	// want is nil for a deletion.
	want *unstructured.Unstructured
	// live is nil if there is no such object, merged is what it would become.
	live, merged *unstructured.Unstructured
	entry        Entry
	// why an object is released instead of deleted.
	why string
}

// plan is everything that a run will do.
type plan struct {
	changes []change
	// prunes are in the order of deletion.
	prunes   []change
	problems []Problem
}

// makePlan asks the API server what each object would become, and which of the
// inventory's objects are to go. It changes nothing. Its error says that the API
// server could not be asked; all else is a problem.
func (c *client) makePlan(ctx context.Context, objects []*unstructured.Unstructured, inv *inventory, force, prune bool) (*plan, error) {
	p := &plan{}
	coming := sets.New[string]()
	for _, want := range objects {
		if want.GetKind() == "Namespace" {
			coming.Insert(want.GetName())
		}
		ch, problem, err := c.planObject(ctx, want, inv, force, coming)
		if err != nil {
			return nil, err
		}
		p.changes = append(p.changes, ch)
		if problem != nil {
			p.problems = append(p.problems, *problem)
		}
	}
	if prune {
		if err := c.planPrune(ctx, p, inv); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (c *client) planObject(ctx context.Context, want *unstructured.Unstructured, inv *inventory, force bool, coming sets.Set[string]) (change, *Problem, error) {
	ch := change{Ref: RefOf(want), action: Created, want: want}
	ch.entry, _ = inv.entry(ch.Ref)
	ch.entry.Ref = ch.Ref
	live, err := c.get(ctx, ch.Ref)
	switch {
	case err == nil && live.GetDeletionTimestamp() != nil:
		return ch, terminating(live), nil
	case err == nil:
		ch.live = live
	case apierrors.IsNotFound(err):
	default:
		p, err := problemOf(ch.Ref, nil, want, err)
		return ch, p, err
	}
	if ch.merged, err = c.apply(ctx, want, force, true); err == nil {
		return judge(ch, force)
	}
	return judgeFailure(ch, force, coming, err)
}

// judgeFailure decides what a dry run that failed means.
func judgeFailure(ch change, force bool, coming sets.Set[string], err error) (change, *Problem, error) {
	mine := ch.live != nil && ours(ch.live, ch.entry)
	switch {
	case ch.live == nil && apierrors.IsNotFound(err) && coming.Has(ch.Namespace):
		ch.merged = ch.want // its namespace comes first; nothing can be in the way there
		return ch, nil, nil
	case mine && isImmutable(err) && (force || isBinding(ch.Kind)):
		ch.action, ch.merged = Recreated, ch.want
		return ch, nil, nil
	}
	p, err := problemOf(ch.Ref, ch.live, ch.want, err)
	if p != nil && p.Reason == ReasonConflict && !mine {
		f := foreign(ch.live, "it is not what the bundle says")
		f.Conflicts, f.err = p.Conflicts, p.err
		p = f
	}
	return ch, p, err
}

// judge decides what a successful dry run means.
func judge(ch change, force bool) (change, *Problem, error) {
	switch {
	case ch.live == nil:
	case ours(ch.live, ch.entry):
		if ch.action = Configured; same(ch.live, ch.merged, true) {
			ch.action = Unchanged
		}
	case !force && foreignOwner(ch.live) != "":
		return ch, foreign(ch.live, foreignOwner(ch.live)), nil
	case !force && !same(ch.live, ch.merged, false):
		return ch, foreign(ch.live, "it is not what the bundle says"), nil
	default:
		field, err := kubectlDiffers(ch.live, ch.want)
		if err != nil {
			return ch, nil, err
		}
		if !force && field != "" {
			return ch, foreign(ch.live, "what kubectl has applied differs from the bundle in "+field), nil
		}
		ch.action, ch.entry.Adopted = Adopted, true
	}
	return ch, nil, nil
}

func foreign(live *unstructured.Unstructured, why string) *Problem {
	return &Problem{
		Object: RefOf(live), Reason: ReasonForeign,
		Message: fmt.Sprintf("exists, fairlead did not make it (managers: %s), and %s", managers(live), why),
		Hint:    "`fairlead diff` shows the differences; --force-conflicts takes the objects over, or remove or rename what is there",
	}
}

func terminating(live *unstructured.Unstructured) *Problem {
	return &Problem{
		Object: RefOf(live), Reason: ReasonTerminating,
		Message: fmt.Sprintf("is being deleted since %s (finalizers: %v)", live.GetDeletionTimestamp().UTC().Format("15:04:05 MST"), live.GetFinalizers()),
		Hint:    "wait until it is gone and run again",
	}
}

// isBinding tells whether objects of a kind can be made anew without anybody
// noticing for more than a moment; kubectl auth reconcile does the same.
func isBinding(kind string) bool { return kind == "RoleBinding" || kind == "ClusterRoleBinding" }

// planPrune adds deletions of what an older bundle left.
func (c *client) planPrune(ctx context.Context, p *plan, inv *inventory) error {
	wanted := sets.New[Ref]()
	for _, ch := range p.changes {
		wanted.Insert(ch.key())
	}
	for _, e := range reversed(inv.Objects) {
		if wanted.Has(e.key()) {
			continue
		}
		ch, problem, err := c.planDelete(ctx, e)
		if err != nil {
			return err
		}
		if problem != nil {
			p.problems = append(p.problems, *problem)
		}
		if ch != nil {
			p.prunes = append(p.prunes, *ch)
		}
	}
	return nil
}

// planDelete returns nil for an object that is gone, is going, or is not ours.
func (c *client) planDelete(ctx context.Context, e Entry) (*change, *Problem, error) {
	live, err := c.get(ctx, e.Ref)
	switch {
	case err == nil:
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, nil, nil
	default:
		p, err := problemOf(e.Ref, nil, nil, err)
		return nil, p, err
	}
	if live.GetDeletionTimestamp() != nil || !ours(live, e) {
		return nil, nil, nil
	}
	ch := &change{Ref: e.Ref, action: Deleted, live: live, entry: e}
	if e.Kind == "Namespace" {
		if ch.why, err = c.keepNamespace(ctx, e); err != nil || ch.why != "" {
			ch.action = Released
			return ch, nil, err
		}
	}
	err = c.remove(ctx, live, true)
	if err == nil || apierrors.IsNotFound(err) {
		return ch, nil, nil
	}
	p, err := problemOf(e.Ref, live, nil, err)
	return nil, p, err
}

// isAnswer tells whether the API server answered, as opposed to a connection that
// broke, or a server that is overloaded or going away.
func isAnswer(err error) bool {
	if meta.IsNoMatchError(err) {
		return true
	}
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code < 500 &&
		!apierrors.IsTooManyRequests(err) && !apierrors.IsUnauthorized(err)
}

// same compares two states of an object. What every write touches does not count;
// who owns which fields does if asked for.
func same(a, b *unstructured.Unstructured, owners bool) bool {
	return equality.Semantic.DeepEqual(essence(a, owners), essence(b, owners))
}

func essence(u *unstructured.Unstructured, owners bool) map[string]any {
	u = u.DeepCopy()
	for _, field := range []string{"resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(u.Object, "status")
	fields := u.GetManagedFields()
	u.SetManagedFields(nil)
	if owners {
		for i := range fields {
			fields[i].Time = nil
		}
		u.SetManagedFields(fields)
	}
	return u.Object
}
