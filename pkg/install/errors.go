// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// Reason classifies a problem.
type Reason string

// The reasons.
const (
	// ReasonConflict: another field manager owns fields and gave them other values.
	ReasonConflict Reason = "Conflict"
	// ReasonForeign: an object of this name exists, and fairlead did not create it.
	ReasonForeign Reason = "Foreign"
	// ReasonOtherBundle: the object belongs to the bundle of another Party.
	ReasonOtherBundle Reason = "OtherBundle"
	// ReasonForbidden: the user lacks permissions.
	ReasonForbidden Reason = "Forbidden"
	// ReasonImmutable: the change needs the object to be deleted and recreated.
	ReasonImmutable Reason = "Immutable"
	// ReasonTerminating: the object is being deleted.
	ReasonTerminating Reason = "Terminating"
	// ReasonRefused: the API server rejects the object.
	ReasonRefused Reason = "Refused"
	// ReasonInUse: kube-apiserver uses the tunnel, which does not work without the object.
	ReasonInUse Reason = "InUse"
)

// Problem is one reason why an object cannot be applied or deleted.
type Problem struct {
	Object  Ref    `json:"object"`
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
	// Conflicts are the fields with conflicts.
	Conflicts []Conflict `json:"conflicts,omitempty"`
	// Hint tells the user what to do.
	Hint string `json:"hint,omitempty"`

	err error
}

// Conflict is one field with a conflict.
type Conflict struct {
	// Field is a path such as .spec.replicas.
	Field string `json:"field"`
	// Owner is the field manager, and how and when it wrote; empty if the difference was
	// found without asking for owners.
	Owner string `json:"owner,omitempty"`
	// Live and Wanted are the field's values in the cluster and in the bundle.
	Live   string `json:"live,omitempty"`
	Wanted string `json:"wanted,omitempty"`
}

// BlockedError lists all problems that block a run. Nothing has been changed.
type BlockedError struct {
	Problems []Problem
	// Missing lists the permissions that the user lacks, if that is a problem.
	Missing []string
}

func (e *BlockedError) Error() string {
	return progress.Count(len(e.Problems), "problem") + ", nothing was changed:" + e.Details()
}

// Details returns the problems, each on a line of its own, and what to do.
func (e *BlockedError) Details() string {
	var b strings.Builder
	hints := []string{}
	for _, p := range e.Problems {
		fmt.Fprintf(&b, "\n%s: %s", p.Object, p.Message)
		for _, c := range p.Conflicts {
			fmt.Fprintf(&b, "\n  %s", c)
		}
		if p.Hint != "" && !slices.Contains(hints, p.Hint) {
			hints = append(hints, p.Hint)
		}
	}
	if len(e.Missing) > 0 {
		b.WriteString("\nthis user may not:\n  " + strings.Join(e.Missing, "\n  "))
	}
	for _, h := range hints {
		fmt.Fprintf(&b, "\nhint: %s", h)
	}
	return b.String()
}

// Unwrap returns the API server's errors.
func (e *BlockedError) Unwrap() []error {
	var out []error
	for _, p := range e.Problems {
		if p.err != nil {
			out = append(out, p.err)
		}
	}
	return out
}

const (
	hintForce  = "`fairlead diff` shows what would change; set the field in the bundle to its current value, or take ownership with --force-conflicts"
	hintRights = "use the kubeconfig of a cluster administrator (cluster-admin), or have these rights granted"
)

// problemOf explains the API server's response to a dry run. It returns an error if
// there was no response, because the connection broke or the server is overloaded.
func problemOf(r Ref, live, wanted *unstructured.Unstructured, err error) (*Problem, error) {
	if !isAnswer(err) && !isUnknownField(err) {
		return nil, fmt.Errorf("%s: %w", r, err)
	}
	p := &Problem{Object: r, Reason: ReasonRefused, Message: err.Error(), err: err}
	switch {
	case apierrors.IsConflict(err):
		if conflicts := conflictsOf(live, wanted, err); len(conflicts) > 0 {
			p.Reason, p.Message, p.Conflicts, p.Hint = ReasonConflict, "others have changed fields of it", conflicts, hintForce
		}
	case apierrors.IsForbidden(err):
		// Admission (quota, Pod Security, policies) rejects with the same code as
		// authorization.
		if p.Reason = ReasonForbidden; isRBAC(err) {
			p.Hint = hintRights
		}
	case isImmutable(err):
		p.Reason = ReasonImmutable
		p.Hint = "recreate it with --force-conflicts; its Pods are replaced"
	case isUnknownField(err):
		p.Hint = "the field is misspelled, or the API server is older than the field: leave it out, or upgrade Kubernetes"
	}
	return p, nil
}

// isUnknownField reports whether the object has a field that the API server does not
// know. Server-side apply returns code 500 for that, as if the server had failed.
func isUnknownField(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "field not declared in schema")
}

func isRBAC(err error) bool {
	text := err.Error()
	return strings.Contains(text, " cannot ") || strings.Contains(text, "attempting to grant RBAC permissions")
}

// isImmutable reports whether an update was rejected because a field is immutable.
func isImmutable(err error) bool {
	return apierrors.IsInvalid(err) && (strings.Contains(err.Error(), "field is immutable") || strings.Contains(err.Error(), "cannot change roleRef"))
}

// conflictManager matches the manager in the API server's message, such as `conflict
// with "kubectl" using apps/v1`.
var conflictManager = regexp.MustCompile(`conflict with "([^"]*)"`)

func conflictsOf(live, wanted *unstructured.Unstructured, err error) []Conflict {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	live, wanted = mask(live, wanted)
	var out []Conflict
	for _, cause := range status.Status().Details.Causes {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		c := Conflict{Field: cause.Field, Owner: cause.Message, Live: valueAt(live, cause.Field), Wanted: valueAt(wanted, cause.Field)}
		if m := conflictManager.FindStringSubmatch(cause.Message); m != nil {
			c.Owner = describeManager(live, m[1])
		}
		out = append(out, c)
	}
	return out
}
