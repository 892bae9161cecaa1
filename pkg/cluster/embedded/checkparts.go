// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// parts stops and starts programs for the disruptive checks.
type parts struct {
	plan       *plan
	supervisor *process.Client
	config     *rest.Config
}

var _ check.Parts = (*parts)(nil)

func (p *parts) schedulers() []string { return names(p.plan.state.Schedulers, schedulerName) }
func (p *parts) agents() []string     { return names(p.plan.state.Agents, agentName) }

func (p *parts) StopScheduler(ctx context.Context) error {
	return p.each(ctx, p.schedulers(), p.supervisor.Stop)
}
func (p *parts) StartScheduler(ctx context.Context) error { return p.start(ctx, p.schedulers()) }
func (p *parts) StopAgents(ctx context.Context) error {
	return p.each(ctx, p.agents(), p.supervisor.Stop)
}
func (p *parts) StartAgents(ctx context.Context) error { return p.start(ctx, p.agents()) }

// start restarts stopped programs and returns once all are ready.
func (p *parts) start(ctx context.Context, names []string) error {
	if err := p.each(ctx, names, p.supervisor.Start); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("not all of %v are ready again after a minute", names))
	defer cancel()
	return poll(ctx, 50*time.Millisecond, func() (bool, error) {
		report, err := p.supervisor.Status(ctx)
		if err != nil {
			return false, err
		}
		for _, name := range names {
			if status, _ := report.Find(name); !status.Ready {
				return false, nil
			}
		}
		return true, nil
	})
}

// leftovers returns the programs that a killed run of the checks has left
// stopped.
func (p *parts) leftovers(ctx context.Context) ([]check.Leftover, error) {
	stopped, err := stoppedPrograms(ctx, p.supervisor)
	if err != nil || len(stopped) == 0 {
		return nil, err
	}
	return []check.Leftover{{
		What:    strings.Join(stopped, ", "),
		Remedy:  "fairlead up --name " + p.plan.Name,
		Restore: func(ctx context.Context) error { return p.start(ctx, stopped) },
	}}, nil
}

// stoppedPrograms lists the programs that were stopped on request.
func stoppedPrograms(ctx context.Context, supervisor *process.Client) ([]string, error) {
	report, err := supervisor.Status(ctx)
	if err != nil {
		return nil, err
	}
	var stopped []string
	for _, status := range report.Processes {
		if status.State == process.Stopped {
			stopped = append(stopped, status.Name)
		}
	}
	return stopped, nil
}

// each calls do for several programs concurrently.
func (p *parts) each(ctx context.Context, names []string, do func(context.Context, string) error) error {
	results := make(chan error, len(names))
	for _, name := range names {
		go func() { results <- do(ctx, name) }()
	}
	var all error
	for range names {
		all = errors.Join(all, <-results)
	}
	return all
}

// KillLeader kills the replica that reports itself as the leader. The Lease's
// identity does not show which process that is: it consists of the host name,
// the same for all replicas, and a random number.
func (p *parts) KillLeader(ctx context.Context, holder string) error {
	leader, err := p.leader(ctx)
	if err != nil {
		return err
	}
	if leader == "" {
		return fmt.Errorf("no replica of the second scheduler says that it leads, though the Lease names %q", holder)
	}
	return p.supervisor.Kill(ctx, leader)
}

// leads reads a replica's own metric of its leadership.
func (p *parts) leads(ctx context.Context, name string) (bool, error) {
	body, err := p.schedulerMetrics(ctx, name)
	if err != nil {
		return false, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("reading its metrics: %w", err)
	}
	for _, m := range families["leader_election_master_status"].GetMetric() {
		if m.GetGauge().GetValue() == 1 {
			return true, nil
		}
	}
	return false, nil
}
