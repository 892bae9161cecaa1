// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

// Status is the outcome of a rule.
type Status string

// The outcomes.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Failed  Status = "failed"
	// Unknown means that what the rule looks at could not be read.
	Unknown Status = "unknown"
	// Skipped means that the rule does not apply, or needs another that did not pass.
	Skipped Status = "skipped"
	// Suppressed means that all findings are suppressed.
	Suppressed Status = "suppressed"
)

// Result is the outcome of one rule.
type Result struct {
	ID     string `json:"id"`
	Group  string `json:"group"`
	Title  string `json:"title"`
	Status Status `json:"status"`
	// Reason says why the status is unknown or skipped, or what could not be read in addition to the findings.
	Reason   string    `json:"reason,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
}

// Report is the outcome of all rules.
type Report struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Cluster    string         `json:"cluster"`
	Server     string         `json:"server"`
	Version    string         `json:"version,omitempty"`
	Taken      string         `json:"taken"`
	Before     bool           `json:"before,omitempty"`
	Counts     map[Status]int `json:"counts"`
	Checks     []Result       `json:"checks"`
}

// Options select and soften rules.
type Options struct {
	// Before judges what an installation needs instead of an installed cluster.
	Before bool
	// Only are IDs, with * as a wildcard; empty means all. What failed or is unknown and keeps one of them from being judged is in the report, too.
	Only []string
	// Suppress are IDs, or ID=OBJECT, both with * as a wildcard.
	Suppress []string
}

// Validate refuses patterns that match no check: they would silently do nothing. Those of Only must match one that applies before, or after, an
// installation, whichever is judged.
func (o Options) Validate() error {
	for _, pattern := range o.Only {
		if err := o.validateOnly(pattern); err != nil {
			return err
		}
	}
	for _, pattern := range o.Suppress {
		id, object, _ := strings.Cut(pattern, "=")
		for _, part := range []string{id, object} {
			if _, err := path.Match(part, ""); err != nil {
				return fmt.Errorf("%q: %w", pattern, err)
			}
		}
		known := slices.ContainsFunc(All(), func(r Rule) bool { return match(id, r.ID) })
		if _, retired := Retired[id]; !known && !retired {
			return fmt.Errorf("%q matches no check: `fairlead check --list` has all", pattern)
		}
	}
	return nil
}

func (o Options) validateOnly(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil {
		return fmt.Errorf("%q: %w", pattern, err)
	}
	chosen := slices.DeleteFunc(All(), func(r Rule) bool { return !match(pattern, r.ID) })
	switch what, retired := Retired[pattern]; {
	case slices.ContainsFunc(chosen, o.applies):
		return nil
	case retired:
		return fmt.Errorf("%q is retired: %s", pattern, what)
	case len(chosen) == 0:
		return fmt.Errorf("%q matches no check: `fairlead check --list` has all", pattern)
	case o.Before:
		return fmt.Errorf("%q matches only checks of an installed cluster, which --pre does not make: leave out --pre", pattern)
	}
	return fmt.Errorf("%q matches only checks that are made before an installation: add --pre", pattern)
}

// applies reports whether a rule is judged.
func (o Options) applies(r Rule) bool {
	return r.Phase == Always || r.Phase == Before && o.Before || r.Phase == After && !o.Before
}

func match(pattern, text string) bool {
	ok, err := path.Match(pattern, text)
	return err == nil && ok
}

// matchObject lets * stand for any text, also for slashes and blanks.
func matchObject(pattern, object string) bool {
	return match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(object, "/", "\x00"))
}

// Judge applies the rules to a snapshot.
func Judge(s *observe.Snapshot, o Options) *Report {
	r := &Report{APIVersion: "fairlead.dev/v1alpha1", Kind: "ClusterReport", Cluster: s.Context, Server: s.Host, Taken: s.Taken.UTC().Format("2006-01-02T15:04:05Z"),
		Before: o.Before, Counts: map[Status]int{}}
	if s.Version.Err == nil && s.Version.Value != nil {
		r.Version = s.Version.Value.GitVersion
	}
	all := map[string]outcome{}
	for _, rule := range All() {
		if o.applies(rule) {
			all[rule.ID] = judge(s, rule, all)
		}
	}
	shown := o.shown(all)
	for _, rule := range All() {
		if !shown[rule.ID] {
			continue
		}
		result := all[rule.ID].Result
		suppress(&result, o.Suppress)
		r.Counts[result.Status]++
		r.Checks = append(r.Checks, result)
	}
	return r
}

// look is run whose panic is an error.
func (r Rule) look(s *observe.Snapshot) (findings []Finding, err error) {
	defer observe.Recovered(&err)
	return r.run(s)
}

func judge(s *observe.Snapshot, rule Rule, all map[string]outcome) outcome {
	out := outcome{Result: Result{ID: rule.ID, Group: rule.Group, Title: rule.Title}}
	var findings []Finding
	err := rule.before(all)
	if err == nil {
		findings, err = rule.look(s)
	}
	if check.IsSkip(err) && len(findings) == 0 {
		out.Status, out.Reason = Skipped, err.Error()
		if other := (*becauseError)(nil); errors.As(err, &other) {
			out.because = other.ids
		}
		return out
	}
	if err != nil && !check.IsSkip(err) {
		out.Reason = err.Error()
		if hint := check.HintOf(err); hint != "" {
			out.Reason += ": " + hint
		}
	}
	out.Findings = findings
	for i := range out.Findings {
		if out.Findings[i].Fix == "" {
			out.Findings[i].Fix = rule.Fix
		}
	}
	out.Status = out.settled()
	return out
}

// settled is the status by the findings and by what could not be read: a failure is one whatever the rest shows, and a warning may not be all.
func (r *Result) settled() Status {
	status := statusOf(r.Findings)
	if status != Failed && r.Reason != "" {
		return Unknown
	}
	return status
}

func statusOf(findings []Finding) Status {
	status := OK
	for _, f := range findings {
		switch {
		case f.Suppressed && status == OK:
			status = Suppressed
		case f.Suppressed:
		case !f.Warning:
			return Failed
		default:
			status = Warning
		}
	}
	return status
}

func suppress(r *Result, patterns []string) {
	if r.Status == Skipped {
		return
	}
	whole := false
	for _, pattern := range patterns {
		id, object, limited := strings.Cut(pattern, "=")
		if !match(id, r.ID) {
			continue
		}
		for i := range r.Findings {
			if !limited || matchObject(object, r.Findings[i].Object) {
				r.Findings[i].Suppressed = true
			}
		}
		whole = whole || !limited
	}
	if r.Status = r.settled(); r.Status == Unknown && whole {
		r.Status = Suppressed
	}
}

// Success reports whether nothing is as bad as the threshold: Failed, Unknown (which includes Failed) or Warning (which includes both).
func (r *Report) Success(threshold Status) bool {
	bad := r.Counts[Failed]
	if threshold == Unknown || threshold == Warning {
		bad += r.Counts[Unknown]
	}
	if threshold == Warning {
		bad += r.Counts[Warning]
	}
	return bad == 0
}
