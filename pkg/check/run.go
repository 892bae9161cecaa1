// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Options select and bound a run.
type Options struct {
	// Checks to choose from; nil means All().
	Checks []Check
	// Only runs the checks whose ID matches; nil runs all. A check asked for in this way must not be skipped for the run to succeed.
	Only *regexp.Regexp
	// Disruptive adds the checks that stop a part and put it back.
	Disruptive bool
	// Timeout replaces every check's own timeout when positive.
	Timeout time.Duration
	// CleanupTimeout bounds each clean-up step after a check; default 90 s, because a step may have to start a stopped part.
	CleanupTimeout time.Duration
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// Reporter receives the progress of a run. Run calls its methods one at a time.
type Reporter interface {
	Begin(cluster string, checks []Check)
	Start(c Check)
	Finish(r Result)
	End(r *Report) error
}

// Run makes the checks in order and reports each. A failed check does not stop the others; an interrupt does, after undoing the changes.
// The error is about the run itself (ErrUsage, or the Reporter's); see Report.Success for the outcome.
func Run(ctx context.Context, env *Env, opts Options, rep Reporter) (*Report, error) {
	if err := env.Complete(); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	checks, notAsked, err := Select(opts)
	if err != nil {
		return nil, err
	}
	if env.Gateway == nil && opts.Only == nil { // it is off by default, and nothing is missing then
		checks = slices.DeleteFunc(checks, func(c Check) bool { return c.Component == ComponentGateway })
	}
	started := opts.Now()
	report := &Report{
		APIVersion: "fairlead.dev/v1alpha1", Kind: "CheckReport", Cluster: env.Cluster,
		Started: started.UTC().Format(time.RFC3339), NotAsked: notAsked, strict: opts.Only != nil, Checks: []Result{},
	}
	if env.AddressFault != nil {
		checks = append([]Check{addressCheck(env.AddressFault)}, checks...)
	}
	if left, ok := leftoverCheck(ctx, env, opts); ok {
		checks = append([]Check{left}, checks...)
	}
	rep.Begin(env.Cluster, checks)
	common := shared{probe: startProbe(ctx, env, checks, opts.Timeout), lease: readLease(ctx, env, checks)}
	for _, c := range checks {
		if ctx.Err() != nil {
			report.add(Result{ID: c.ID, Title: c.Title, Disruptive: c.Disruptive, Status: Skipped, Error: "the run was interrupted before this check"})
			continue
		}
		rep.Start(c)
		res := runOne(ctx, env, c, opts, common)
		report.add(res)
		rep.Finish(res)
	}
	report.Interrupted = ctx.Err() != nil
	var left error
	if common.probe != nil && common.probe.users > 0 {
		left = common.probe.close(ctx, opts.CleanupTimeout)
	}
	report.Seconds = seconds(opts.Now().Sub(started))
	return report, errors.Join(left, rep.End(report))
}

func (o Options) withDefaults() Options {
	if o.Checks == nil {
		o.Checks = All()
	}
	if o.CleanupTimeout <= 0 {
		o.CleanupTimeout = 90 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Select returns the checks that opts ask for, and the IDs of the disruptive ones that were left out. A selection that cannot be made is an
// ErrUsage.
func Select(opts Options) (selected []Check, notAsked []string, err error) {
	opts = opts.withDefaults()
	for _, c := range opts.Checks {
		switch {
		case opts.Only != nil && !opts.Only.MatchString(c.ID):
		case c.Disruptive && !opts.Disruptive:
			notAsked = append(notAsked, c.ID)
		default:
			selected = append(selected, c)
		}
	}
	if len(selected) > 0 {
		return selected, notAsked, nil
	}
	if len(notAsked) > 0 {
		return nil, nil, Usage("%s stops a component of the cluster and restores it: add --disruptive to allow that", strings.Join(notAsked, ", "))
	}
	return nil, nil, Usage("no check matches %q: list all checks with --list", opts.Only)
}

// shared holds what the checks of a run have in common; a check that runs alone has none.
type shared struct {
	probe *sharedProbe
	lease *earlyLease
}

func runOne(ctx context.Context, env *Env, c Check, opts Options, common shared) Result {
	begin := opts.Now()
	res := Result{ID: c.ID, Title: c.Title, Disruptive: c.Disruptive}
	scope := newScope(env, c.ID)
	scope.lease = common.lease
	if c.usesProbePod && common.probe != nil {
		scope.probe = common.probe
		common.probe.release(scope, opts.CleanupTimeout)
	}
	err := runBounded(ctx, scope, c, opts.Timeout)
	if ctx.Err() != nil {
		err = WithHint(fmt.Errorf("interrupted: %w", ctx.Err()), "the check restored what it had changed, unless the error says otherwise")
	}
	// A part that could not be put back is a failure even when the check itself passed.
	if cerr := scope.cleanup(ctx, opts.CleanupTimeout); cerr != nil {
		err = joinCleanup(err, cerr)
	}
	res.Seconds = seconds(opts.Now().Sub(begin))
	res.Details, res.Warnings = scope.details, scope.warnings
	res.setOutcome(err, c.Hint)
	return res
}

func runBounded(ctx context.Context, s *Scope, c Check, override time.Duration) error {
	limit := c.Timeout
	if override > 0 {
		limit = override
	}
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	if reason := s.switchedOff(c); reason != "" {
		return Skip("%s", reason)
	}
	err := c.Run(ctx, s)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("timed out after %s: %w", limit, err)
	}
	return err
}

func joinCleanup(err, cleanup error) error {
	if err == nil {
		return cleanup
	}
	if IsSkip(err) {
		return cleanup
	}
	return fmt.Errorf("%w; and %w", err, cleanup)
}

func (r *Result) setOutcome(err error, hint string) {
	var skip *skipError
	switch {
	case err == nil:
		r.Status = OK
		return
	case errors.As(err, &skip):
		// The reason is enough: leave out the operation that returned it.
		r.Status, r.Error = Skipped, skip.Error()
	default:
		r.Status, r.Error = Failed, err.Error()
	}
	if r.Hint = HintOf(err); r.Hint == "" && r.Status == Failed {
		r.Hint = hint
	}
}

// seconds rounds to milliseconds, which is as exact as these measurements are.
func seconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond).Milliseconds()) / 1000
}
