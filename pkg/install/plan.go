// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Action is what a run does, or would do, to an object.
type Action string

// The actions.
const (
	// Created: the object did not exist.
	Created Action = "created"
	// Configured: it was changed.
	Configured Action = "configured"
	// Unchanged: the object already matched the bundle and was ours.
	Unchanged Action = "unchanged"
	// Adopted: fairlead did not create the object, and owns it now.
	Adopted Action = "adopted"
	// Recreated: the object was deleted and created again, because the change is
	// not possible otherwise.
	Recreated Action = "recreated"
	// Deleted: the bundle no longer has it, or everything is uninstalled.
	Deleted Action = "deleted"
	// Released: fairlead gave up its fields, because other owners use the object
	// as well.
	Released Action = "released"
)

// change is the planned change of one object.
type change struct {
	Ref
	action Action
	// want is nil for a deletion.
	want *unstructured.Unstructured
	// live is nil if there is no such object; merged is what it would become.
	live, merged *unstructured.Unstructured
	entry        Entry
	// why is the reason to release an object instead of deleting it.
	why string
}

// plan is everything that a run will do.
type plan struct {
	changes []change
	// prunes are in the order of deletion.
	prunes   []change
	problems []Problem
	// kept are not among the objects and are not pruned.
	kept []Entry
}

// makePlan determines by dry runs what each object would become, and which of the
// inventory's objects to delete. It changes nothing. It returns an error only if
// it could not reach the API server; everything else is a problem in the plan.
func (c *client) makePlan(ctx context.Context, objects []*unstructured.Unstructured, inv *inventory, force, prune bool) (*plan, error) {
	p := &plan{}
	coming := sets.New[string]()
	for _, want := range objects {
		switch want.GetKind() {
		case "Namespace":
			coming.Insert(want.GetName())
		case "ClusterRole", "Role":
			coming.Insert(roleKey(want.GetKind(), want.GetNamespace(), want.GetName()))
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
		if problem := c.contested(live, inv, ch.entry); problem != nil {
			return ch, problem, nil
		}
	case apierrors.IsNotFound(err):
	default:
		p, err := problemOf(ch.Ref, nil, want, err)
		return ch, p, err
	}
	if ch.merged, err = c.apply(ctx, want, force, true); err == nil {
		return c.judge(ch, force)
	}
	return c.judgeFailure(ctx, ch, force, coming, err)
}

// judgeFailure interprets a failed dry run.
func (c *client) judgeFailure(ctx context.Context, ch change, force bool, coming sets.Set[string], err error) (change, *Problem, error) {
	mine := ch.live != nil && c.ours(ch.live, ch.entry)
	switch {
	case ch.live == nil && apierrors.IsNotFound(err) && coming.Has(ch.Namespace):
		ch.merged = ch.want // its namespace is created first; nothing can block the object there
		return ch, nil, nil
	case ch.live == nil && apierrors.IsNotFound(err) && coming.Has(boundRole(ch.want)):
		// Of a user who may not bind every role, the API server compares the rights with those of
		// the role, which is created first.
		ch.merged = ch.want
		return ch, nil, nil
	case mine && isImmutable(err) && (force && ch.Kind != definitionKind || isBinding(ch.Kind)):
		ch.action, ch.merged = Recreated, ch.want
		return ch, nil, nil
	}
	p, err := problemOf(ch.Ref, ch.live, ch.want, err)
	if p != nil && !mine {
		p = c.foreignProblem(ctx, ch, p)
	}
	return ch, p, err
}

// foreignProblem is a problem with an object that belongs to another owner.
func (c *client) foreignProblem(ctx context.Context, ch change, p *Problem) *Problem {
	immutable := p.Reason == ReasonImmutable
	if p.Reason == ReasonConflict {
		f := foreign(ch.live, "it is not what the bundle says")
		f.Conflicts, f.err = p.Conflicts, p.err
		p = f
		_, forced := c.apply(ctx, ch.want, true, true)
		immutable = isImmutable(forced)
	}
	if immutable {
		p.Hint = hintDelete(ch.Ref)
	}
	return p
}

// judge interprets a successful dry run.
func (c *client) judge(ch change, force bool) (change, *Problem, error) {
	switch {
	case ch.live == nil:
	case c.ours(ch.live, ch.entry):
		if ch.action = Configured; same(ch.live, ch.merged, true) {
			ch.action = Unchanged
		}
	case !force && foreignOwner(ch.live) != "":
		return ch, foreign(ch.live, foreignOwner(ch.live)), nil
	case !force && !same(ch.live, ch.merged, false):
		f := foreign(ch.live, "it is not what the bundle says")
		live, merged := mask(ch.live, ch.merged)
		differences := fieldDifferences(essence(live, false), essence(merged, false), "")
		f.Conflicts = differences[:min(len(differences), maxFields)]
		return ch, f, nil
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

// hintDelete returns the hint for an object that fairlead did not create and that
// cannot become what the bundle says: fairlead deletes only what it has created.
func hintDelete(r Ref) string {
	command := "kubectl delete " + strings.Replace(r.ShortName(), "/", " ", 1)
	if r.Namespace != "" {
		command += " -n " + r.Namespace
	}
	return fmt.Sprintf("%s is not fairlead's, and a field of it that must differ cannot be changed: rename yours in the bundle, or delete it yourself and run this again: `%s`", r, command)
}

// heldBy says what blocks the deletion of an object.
func heldBy(live *unstructured.Unstructured) string {
	held := live.GetFinalizers()
	conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	for _, item := range conditions {
		if c, ok := item.(map[string]any); ok && live.GetKind() == "Namespace" && c["status"] == "True" {
			held = append(held, fmt.Sprint(c["message"]))
		}
	}
	if len(held) == 0 {
		return "its controller has not removed it yet"
	}
	return "held by " + strings.Join(held, "; ")
}

func terminating(live *unstructured.Unstructured) *Problem {
	return &Problem{
		Object: RefOf(live), Reason: ReasonTerminating,
		Message: fmt.Sprintf("is being deleted since %s (%s)", live.GetDeletionTimestamp().UTC().Format("15:04:05 MST"), heldBy(live)),
		Hint:    "wait until it is gone and run again",
	}
}

// planPrune adds the deletions of what an older bundle left.
func (c *client) planPrune(ctx context.Context, p *plan, inv *inventory) error {
	wanted, keep := sets.New[Ref](), sets.New[Ref]()
	for _, ch := range p.changes {
		wanted.Insert(ch.key())
	}
	for _, k := range c.keep {
		keep.Insert(k.key())
	}
	for _, e := range reversed(inv.Objects) {
		if wanted.Has(e.key()) {
			continue
		}
		// The deletion of a definition deletes all objects of its kind.
		if c.keepOthers || keep.Has(e.key()) || e.Kind == definitionKind {
			p.kept = append(p.kept, e)
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

// planDelete returns nil for an object that is gone, is being deleted, is not ours, or
// was left by its owner.
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
	if live.GetDeletionTimestamp() != nil || !c.ours(live, e) || c.orphaned(live) {
		return nil, nil, nil
	}
	ch := &change{Ref: e.Ref, action: Deleted, live: live, entry: e}
	if ch.why = c.sharedWith(live); ch.why != "" {
		ch.action = Released
		return ch, nil, nil
	}
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

// isAnswer reports whether the API server answered the request, as opposed to a
// broken connection, or a server that is overloaded or shutting down.
func isAnswer(err error) bool {
	if meta.IsNoMatchError(err) {
		return true
	}
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code < 500 &&
		!apierrors.IsTooManyRequests(err) && !apierrors.IsUnauthorized(err)
}

// same compares two states of an object. It ignores the fields that every write
// changes. It compares the ownership of fields if owners is true.
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
