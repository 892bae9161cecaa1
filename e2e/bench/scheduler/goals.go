// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// goal is the target of a profile at 1,000 nodes, as a ratio to another scheduler with the same workload in the same
// runs.
type goal struct {
	workload, scheduler, against, what string
	value                              func(r row) float64
	limit                              float64
	// below says that smaller is better.
	below bool
}

const (
	goalNodes = 1000
	goalRate  = 100
)

func goals() []goal {
	speed := func(r row) float64 { return r.PodsPerSecond }
	cpu := func(r row) float64 { return r.CPUMillisPerPod }
	p99 := func(r row) float64 {
		i := slices.IndexFunc(r.Open, func(o openResult) bool { return o.Rate == goalRate })
		if i < 0 {
			return 0
		}
		return r.Open[i].P99
	}
	return []goal{
		{services, ours, documented, "pods/s", speed, 5, false},
		{services, ours, documented, fmt.Sprintf("p99 of create-to-bind at %d pods/s", goalRate), p99, 0.01, true},
		{services, ours, stock, "pods/s", speed, 1, false},
		{services, ours, stock, "CPU per pod", cpu, 1, true},
		{services, sameShare, stock, "pods/s", speed, 1, false},
		{services, sameShare, stock, "CPU per pod", cpu, 1, true},
		{batch, ours, documented, "pods/s", speed, 10, false},
		{batch, ours, stock, "pods/s", speed, 2, false},
		{batch, ours, stock, "CPU per pod", cpu, 0.4, true},
		{mixed, ours, stock, "nodes used", func(r row) float64 { return float64(r.NodesUsed) }, 1, true},
	}
}

// goalTable compares the rows with the goals. It leaves out rows that were not measured.
func goalTable(rows []row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| workload, %d nodes | scheduler | compared with | ratio of | goal | measured | | runs of each |\n|---|---|---|---|--:|--:|---|---|\n", goalNodes)
	for _, g := range goals() {
		own, ok := goalRow(rows, g.workload, g.scheduler)
		other, beside := goalRow(rows, g.workload, g.against)
		if !ok || !beside || g.value(own) == 0 || g.value(other) == 0 {
			continue
		}
		ratio := g.value(own) / g.value(other)
		sign, reached := "≥", ratio >= g.limit
		if g.below {
			sign, reached = "≤", ratio <= g.limit
		}
		verdict := "missed"
		if reached {
			verdict = "reached"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s %.4gx | %.3gx | %s | %d, %d |\n", g.workload, g.scheduler, g.against, g.what, sign, g.limit, ratio, verdict, own.runs, other.runs)
	}
	return b.String()
}

// goalRow is the row of a scheduler at the size that the goals are for.
func goalRow(rows []row, workload, scheduler string) (row, bool) {
	i := slices.IndexFunc(rows, func(r row) bool {
		return r.Nodes == goalNodes && r.Workload == workload && r.Scheduler == scheduler
	})
	if i < 0 {
		return row{}, false
	}
	return rows[i], true
}

// ceiling says how many Pods of batch the API server and etcd could bind here if the scheduler took no time: they and the
// scheduler share the processors. "" where that was not measured.
func ceiling(rows []row) string {
	own, ok := goalRow(rows, batch, ours)
	other, beside := goalRow(rows, batch, documented)
	if !ok || !beside || own.BindMillisPerPod == 0 || other.PodsPerSecond == 0 {
		return ""
	}
	var processors int
	if _, err := fmt.Sscanf(own.Machine, "%d x", &processors); err != nil {
		return ""
	}
	most := float64(processors) * 1000 / own.BindMillisPerPod
	return fmt.Sprintf("With batch, the API server and etcd take %.3g ms of CPU for each Pod that fairlead binds, until the last is bound: on these %d processors a scheduler that took no time "+
		"itself would bind %.0f Pods per second, %.1f times what documented does.\n", own.BindMillisPerPod, processors, most, most/other.PodsPerSecond)
}
