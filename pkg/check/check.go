// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"time"
)

// Check is one thing that can be proved about a running cluster.
type Check struct {
	// ID is stable and kebab-case; --only matches it.
	ID string
	// Component is the part of the bundle that the check is about; empty is the cluster. A check of a component that
	// Env.SwitchedOff names is skipped.
	Component Component
	// Title says in one line what holds when the check passes.
	Title string
	// Disruptive checks stop a part of the cluster and put it back.
	Disruptive bool
	// Timeout bounds Run, cleaning up excluded.
	Timeout time.Duration
	// Hint is the advice printed when the error carries none of its own.
	Hint string
	// usesProbePod says that Run calls a probe pod and leaves it as it was, so several checks may share one.
	usesProbePod bool
	// watchesLease says that Run waits for a renewal of the second scheduler's Lease. The Lease is read when the run begins, so the
	// wait is shorter.
	watchesLease bool
	// Run returns nil when the check passes, Skip(…) when it cannot be made, and any other error when it fails.
	Run func(ctx context.Context, s *Scope) error
}

// Component is a part of the bundle.
type Component string

const (
	// ComponentScheduler is the second scheduler.
	ComponentScheduler Component = "scheduler"
	// ComponentTunnel is the Konnectivity server and its agents.
	ComponentTunnel Component = "tunnel"
	// ComponentGateway is the shared way into the cluster network, which a bundle has only if it says so.
	ComponentGateway Component = "gateway"
)

// Status is the outcome of a check.
type Status string

const (
	// OK means proved.
	OK Status = "ok"
	// Failed means disproved, or not provable with a cluster that should allow it.
	Failed Status = "failed"
	// Skipped means not made; Result.Error says why.
	Skipped Status = "skipped"
)

// Result is the outcome of one check, as printed and as written to JSON.
type Result struct {
	ID         string `json:"id"`
	Title      string `json:"title"`
	Disruptive bool   `json:"disruptive,omitempty"`
	Status     Status `json:"status"`
	// Seconds is how long the check took, cleaning up included.
	Seconds float64 `json:"seconds"`
	// Error says what is wrong (failed) or why the check was not made (skipped).
	Error string `json:"error,omitempty"`
	// Hint says what to do about Error.
	Hint string `json:"hint,omitempty"`
	// Warnings are what is unsafe although the check passed, each with what to do about it.
	Warnings []string `json:"warnings,omitempty"`
	// Details are measurements and observations, for example the takeover time of the Lease.
	Details map[string]string `json:"details,omitempty"`
}

// Report is the outcome of a run.
type Report struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Cluster is the name of the cluster for people: usually the kubeconfig context.
	Cluster string   `json:"cluster"`
	Started string   `json:"started"`
	Seconds float64  `json:"seconds"`
	Passed  int      `json:"passed"`
	Failed  int      `json:"failed"`
	Skipped int      `json:"skipped"`
	Checks  []Result `json:"checks"`
	// NotAsked lists the ids of the disruptive checks that were not requested.
	NotAsked []string `json:"notAsked,omitempty"`
	// Interrupted is true when the run was cut short.
	Interrupted bool `json:"interrupted,omitempty"`
	// strict makes a skipped check count against success, because it was asked for by name.
	strict bool
}

// Success is true when nothing failed, nothing was cut short, and nothing that was asked for by name was skipped.
func (r *Report) Success() bool {
	return r.Failed == 0 && !r.Interrupted && (!r.strict || r.Skipped == 0)
}

func (r *Report) add(res Result) {
	r.Checks = append(r.Checks, res)
	switch res.Status {
	case OK:
		r.Passed++
	case Skipped:
		r.Skipped++
	default:
		r.Failed++
	}
}
