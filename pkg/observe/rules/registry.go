// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"

	"github.com/fairlead-dev/fairlead/pkg/observe"
)

// Phase is when a rule applies.
type Phase string

// The phases.
const (
	// Always applies before and after an installation.
	Always Phase = "always"
	// Before applies before an installation only, After to an installed cluster only.
	Before Phase = "before"
	After  Phase = "after"
)

// Rule is one thing that should hold.
type Rule struct {
	// ID is stable and never used again, such as FL-KON-012.
	ID string `json:"id"`
	// Group is what the rule is about, for people.
	Group string `json:"group"`
	// Title says what holds if the rule passes.
	Title string `json:"title"`
	Phase Phase  `json:"phase"`
	// Why explains what breaks otherwise, Fix how to repair it in general. A finding has the exact command.
	Why string `json:"why"`
	Fix string `json:"fix"`
	// Needs are IDs of rules without which this one says nothing.
	Needs []string `json:"needs,omitempty"`
	// NotIf are IDs of rules whose failure explains what this one finds.
	NotIf []string `json:"notIf,omitempty"`
	// run returns what is wrong. An error means that it is unknown, and a check.Skip that the rule does not apply. Both may be there: findings in what
	// could be read, and an error for the rest.
	run func(s *observe.Snapshot) ([]Finding, error)
}

// Finding is one thing that is wrong.
type Finding struct {
	// Object is what it is about, such as "Deployment kube-system/my-scheduler"; empty for the cluster.
	Object  string `json:"object,omitempty"`
	Message string `json:"message"`
	// Fix is the exact command or field; empty means that of the rule.
	Fix string `json:"fix,omitempty"`
	// Warning means that it works for now.
	Warning bool `json:"warning,omitempty"`
	// Suppressed means that the caller does not want to see it.
	Suppressed bool `json:"suppressed,omitempty"`
}

// Retired are IDs that were in use once, and what became of them.
var Retired = map[string]string{}

// All returns every rule in the order in which results are printed.
func All() []Rule {
	return slices.Concat(apiRules(), beforeRules(), tunnelRules(), tunnelFlagRules(), schedulerRules(), extensionRules(), certificateRules(), hostRules())
}

// Find returns the rule of that ID.
func Find(id string) (Rule, error) {
	for _, r := range All() {
		if r.ID == id {
			return r, nil
		}
	}
	if what, ok := Retired[id]; ok {
		return Rule{}, fmt.Errorf("check %s is retired: %s", id, what)
	}
	return Rule{}, fmt.Errorf("no check %q: `fairlead check --list` has all", id)
}

func one(object, message, fix string) []Finding {
	return []Finding{{Object: object, Message: message, Fix: fix}}
}

// unread is what a rule could not read of several things of a kind.
type unread struct {
	first error
	more  int
}

func (u *unread) add(object string, err error) {
	if u.first != nil {
		u.more++
		return
	}
	u.first = fmt.Errorf("%s: %w", object, err)
}

// err names the first, and is nil if all could be read.
func (u *unread) err() error {
	if u.more > 0 {
		return fmt.Errorf("%w (and %d more)", u.first, u.more)
	}
	return u.first
}

func warn(object, message, fix string) []Finding {
	return []Finding{{Object: object, Message: message, Fix: fix, Warning: true}}
}
