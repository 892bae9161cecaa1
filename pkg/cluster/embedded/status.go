// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// Status is the result of Provider.Status. If the embedded types have a field
// of the same name, JSON has the Summary's.
type Status struct {
	cluster.Summary
	State
	// AddressFault says that the nodes' address is not reachable, and what to
	// do.
	AddressFault string `json:"addressFault,omitempty"`
	// SupervisorRSSBytes is the supervisor's share of the memory.
	SupervisorRSSBytes int64 `json:"supervisorRSSBytes,omitempty"`
	// Supervisor is its process ID.
	Supervisor int              `json:"supervisorPID,omitempty"`
	Processes  []process.Status `json:"processes,omitempty"`
}

var _ cluster.Status = Status{}

// Status implements cluster.Provider.
func (p *Provider) Status(ctx context.Context, name string) (cluster.Status, error) {
	s, err := p.status(ctx, name)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (p *Provider) status(ctx context.Context, name string) (Status, error) {
	l, err := NewLayout(p.root, name)
	if err != nil {
		return Status{}, err
	}
	state, err := l.readState()
	if err != nil {
		return Status{}, err
	}
	s := Status{State: state, Summary: state.Summary(l.Home, cluster.Embedded)}
	s.Server = (&plan{Layout: l, state: state}).serverURL()
	report, err := process.NewClient(l.SupervisorSocket()).Status(ctx)
	switch {
	case errors.Is(err, process.ErrNotRunning):
		return s, nil
	case errors.Is(err, process.ErrHangs):
		s.Running = true // running, but not healthy
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.Running, s.Supervisor, s.Processes, s.RSSBytes = true, report.PID, report.Processes, report.TotalRSSBytes()
	s.SupervisorRSSBytes = report.RSSBytes
	if fault := state.addressFault(name); fault != nil {
		s.AddressFault = fmt.Sprintf("%v: %s", fault, check.HintOf(fault))
	}
	s.Healthy = s.AddressFault == "" && !slices.ContainsFunc(report.Processes, func(ps process.Status) bool { return !ps.Ready })
	return s, nil
}

// Problem implements cluster.Status.
func (s Status) Problem() string {
	switch {
	case s.Healthy:
		return ""
	case !s.Running:
		return fmt.Sprintf("cluster %q is stopped: start it with \"fairlead up --name %s\"", s.Summary.Name, s.Summary.Name)
	case len(s.Processes) == 0:
		return fmt.Sprintf("the supervisor of cluster %q does not answer: \"fairlead down --name %s\" removes the cluster all the same", s.Summary.Name, s.Summary.Name)
	case s.AddressFault != "":
		return s.AddressFault
	}
	for _, p := range s.Processes {
		if !p.Ready {
			return fmt.Sprintf("%s is %s; see %s", p.Name, describe(p), p.LogFile)
		}
	}
	return "not healthy"
}

func describe(p process.Status) string {
	switch {
	case p.State == process.Running && p.Ready:
		return "ready"
	case p.State == process.Running:
		return "running, not ready"
	case p.Reason != "":
		return string(p.State) + " (" + p.Reason + ")"
	}
	return string(p.State)
}

// WriteTable implements cluster.Status.
func (s Status) WriteTable(out io.Writer) error {
	_, _ = fmt.Fprintf(out, "Cluster %s: %s, Kubernetes %s, %s\nContext: %s\nServer:  %s\nFiles:   %s\nLogs:    %s\n",
		s.Summary.Name, s.Health(), s.Summary.KubernetesVersion, progress.Count(s.Summary.Nodes, "node"), s.Context, s.Server, s.Dir, filepath.Join(s.Dir, "logs"))
	if len(s.Processes) == 0 {
		return nil
	}
	live := 1
	for _, p := range s.Processes {
		if p.PID != 0 {
			live++
		}
	}
	_, _ = fmt.Fprintf(out, "Memory:  %s in %d processes\n\n", progress.Mebibytes(s.RSSBytes), live)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "PROCESS\tPID\tSTATE\tFOR\tRESTARTS\tMEMORY")
	for _, p := range s.Processes {
		pid, memory := "-", "-"
		if p.PID != 0 {
			pid, memory = fmt.Sprint(p.PID), progress.Mebibytes(p.RSSBytes)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", p.Name, pid, describe(p),
			duration.HumanDuration(time.Since(p.Since)), p.Restarts, memory)
	}
	_, _ = fmt.Fprintf(w, "supervisor\t%d\tready\t\t\t%s\n", s.Supervisor, progress.Mebibytes(s.SupervisorRSSBytes))
	return w.Flush()
}
