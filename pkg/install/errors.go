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

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// Reason says what kind of problem is in the way.
type Reason string

// The reasons.
const (
	// ReasonConflict: another field manager owns fields and gave them other values.
	ReasonConflict Reason = "Conflict"
	// ReasonForeign: there is an object of this name that fairlead did not make.
	ReasonForeign Reason = "Foreign"
	// ReasonForbidden: the user lacks rights.
	ReasonForbidden Reason = "Forbidden"
	// ReasonImmutable: the change needs the object to be made anew.
	ReasonImmutable Reason = "Immutable"
	// ReasonTerminating: the object is on its way out.
	ReasonTerminating Reason = "Terminating"
	// ReasonRefused: the API server does not take the object.
	ReasonRefused Reason = "Refused"
)

// Problem is one thing that keeps an object from being applied or deleted.
type Problem struct {
	Object  Ref    `json:"object"`
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
	// Conflicts are the fields in dispute.
	Conflicts []Conflict `json:"conflicts,omitempty"`
	// Hint says what to do.
	Hint string `json:"hint,omitempty"`

	err error
}

// Conflict is one field in dispute.
type Conflict struct {
	// Field is a path such as .spec.replicas.
	Field string `json:"field"`
	// Owner is the field manager, and how and when it wrote.
	Owner string `json:"owner"`
	// Live and Wanted are the field's values in the cluster and in the bundle.
	Live   string `json:"live,omitempty"`
	Wanted string `json:"wanted,omitempty"`
}

// BlockedError lists all that is in the way. Nothing has been changed.
type BlockedError struct {
	Problems []Problem
	// Missing are the rights that the user lacks, if that is a problem.
	Missing []string
}

func (e *BlockedError) Error() string {
	return cluster.Count(len(e.Problems), "problem") + ", nothing was changed:" + e.Details()
}

// Details are the problems, each on a line of its own, and what to do.
func (e *BlockedError) Details() string {
	var b strings.Builder
	hints := []string{}
	for _, p := range e.Problems {
		fmt.Fprintf(&b, "\n%s: %s", p.Object, p.Message)
		for _, c := range p.Conflicts {
			fmt.Fprintf(&b, "\n  %s: is %s, the bundle says %s; owner: %s", c.Field, c.Live, c.Wanted, c.Owner)
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

// Unwrap returns the API server's answers.
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
	hintForce  = "`fairlead diff` shows what would change; set the field in the bundle to what it is, or let fairlead have it with --force-conflicts"
	hintRights = "use the kubeconfig of a cluster administrator (cluster-admin), or have these rights granted"
)

// problemOf explains the API server's answer to a dry run. What is no answer, but
// a connection that broke or a server that is overloaded, stays an error.
func problemOf(r Ref, live, wanted *unstructured.Unstructured, err error) (*Problem, error) {
	if !isAnswer(err) {
		return nil, fmt.Errorf("%s: %w", r, err)
	}
	p := &Problem{Object: r, Reason: ReasonRefused, Message: err.Error(), err: err}
	switch {
	case apierrors.IsConflict(err):
		if conflicts := conflictsOf(live, wanted, err); len(conflicts) > 0 {
			p.Reason, p.Message, p.Conflicts, p.Hint = ReasonConflict, "others have changed fields of it", conflicts, hintForce
		}
	case apierrors.IsForbidden(err):
		// Admission (quota, Pod Security, policies) answers with the same code as authorization.
		if p.Reason = ReasonForbidden; isRBAC(err) {
			p.Hint = hintRights
		}
	case isImmutable(err):
		p.Reason = ReasonImmutable
		p.Hint = "--force-conflicts deletes and makes it anew; its Pods are replaced"
	}
	return p, nil
}

func isRBAC(err error) bool {
	text := err.Error()
	return strings.Contains(text, " cannot ") || strings.Contains(text, "attempting to grant RBAC permissions")
}

// isImmutable tells whether an update was refused because a field cannot change.
func isImmutable(err error) bool {
	return apierrors.IsInvalid(err) && (strings.Contains(err.Error(), "field is immutable") || strings.Contains(err.Error(), "cannot change roleRef"))
}

// conflictManager finds the manager in the API server's text, such as
// `conflict with "kubectl" using apps/v1`.
var conflictManager = regexp.MustCompile(`conflict with "([^"]*)"`)

func conflictsOf(live, wanted *unstructured.Unstructured, err error) []Conflict {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
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
