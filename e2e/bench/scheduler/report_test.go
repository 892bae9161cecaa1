// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func run3(workload, scheduler string, speed, cpu float64, change ...func(*result)) []result {
	var runs []result
	for i, factor := range []float64{0.9, 1, 1.2} {
		r := result{
			When: time.Date(2026, 1, 2, 3, i, 0, 0, time.UTC), Machine: "2 x a", Build: "new", Nodes: goalNodes, Workload: workload, Scheduler: scheduler,
			Repetition: i, Pods: 1000, PodsPerSecond: speed * factor, CPUMillisPerPod: cpu * factor, NodesUsed: 100,
		}
		for _, c := range change {
			c(&r)
		}
		runs = append(runs, r)
	}
	return runs
}

// TestGoals: the goals are compared with medians of what was measured together, and say whether they are reached.
func TestGoals(t *testing.T) {
	p99 := func(ms float64) func(*result) {
		return func(r *result) { r.Open = []openResult{{Rate: 50, P99: 1}, {Rate: goalRate, P99: ms}} }
	}
	var all []result
	all = append(all, run3(services, documented, 50, 4, p99(9000))...)
	all = append(all, run3(services, stock, 300, 4)...)
	all = append(all, run3(services, ours, 240, 4, p99(89))...)
	all = append(all, run3(batch, documented, 50, 5)...)
	all = append(all, run3(batch, ours, 500, 1)...)
	got := goalTable(summarize(all))
	for _, want := range []string{
		"| services | fairlead | documented | pods/s | ≥ 5x | 4.8x | missed | 3, 3 |",
		"| services | fairlead | documented | p99 of create-to-bind at 100 pods/s | ≤ 0.01x | 0.00989x | reached | 3, 3 |",
		"| services | fairlead | stock | pods/s | ≥ 1x | 0.8x | missed | 3, 3 |",
		"| services | fairlead | stock | CPU per pod | ≤ 1x | 1x | reached | 3, 3 |",
		"| batch | fairlead | documented | pods/s | ≥ 10x | 10x | reached | 3, 3 |",
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "| batch | fairlead | stock |") {
		t.Errorf("a goal that was not measured is in the table:\n%s", got)
	}
}

// TestCeiling: what is left when a scheduler takes no time is what the API server and etcd can do.
func TestCeiling(t *testing.T) {
	all := run3(batch, ours, 400, 1, func(r *result) { r.BindMillisPerPod = 4 })
	if got := ceiling(summarize(all)); got != "" {
		t.Errorf("without documented: %q", got)
	}
	got := ceiling(summarize(append(all, run3(batch, documented, 50, 5)...)))
	if !strings.Contains(got, "take 4 ms") || !strings.Contains(got, "bind 500 Pods per second, 10.0 times") {
		t.Errorf("got %q", got)
	}
}

// TestUsableResults: one table has results of one machine, one build of each scheduler, and no others' work.
func TestUsableResults(t *testing.T) {
	set := func(f func(*result)) func(*result) { return f }
	old := run3(batch, ours, 1, 1, set(func(r *result) { r.Build = "old" }))
	elsewhere := run3(batch, ours, 1, 1, set(func(r *result) { r.Machine = "64 x b" }))
	busy := run3(batch, ours, 1, 1, set(func(r *result) { r.Others = 0.3 }))
	good := append(run3(batch, stock, 2, 1, set(func(r *result) { r.Build = "other program" })), run3(batch, ours, 3, 1)...)
	var all []result
	for _, part := range [][]result{old, elsewhere, busy, good} {
		all = append(all, part...)
	}
	used := usableResults(all, 0.1)
	if len(used) != len(good) {
		t.Fatalf("%d of %d results are used, want %d", len(used), len(all), len(good))
	}
	for _, r := range used {
		if r.PodsPerSecond < 1.5 {
			t.Errorf("%+v should have been left out", r)
		}
	}
	text := provenance(all, used, options{othersLimit: 0.1})
	for _, want := range []string{"6 runs on 2 x a", "2026-01-02 03:00", "2026-01-02 03:02", "9 further runs are left out"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %q", want, text)
		}
	}
}

// TestReportReplacesItsParts: text around the tables is kept, also when the tables are written again.
func TestReportReplacesItsParts(t *testing.T) {
	dir := t.TempDir()
	o := options{results: filepath.Join(dir, "results.jsonl"), docs: dir, othersLimit: 0.1}
	file := filepath.Join(dir, page)
	head := "# Title\n\nbefore\n\n<!-- results: written by make bench-scheduler -->\nold\n<!-- end of results -->\n\nafter\n"
	if err := os.WriteFile(file, []byte(head), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, r := range run3(mixed, stock, 100, 1) {
		if err := appendResult(o.results, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := appendResult(togetherFile(o), togetherResult{Arrangement: "shared", Machine: "m", DoubleBooked: 2}); err != nil {
		t.Fatal(err)
	}
	var first string
	for range 2 {
		if err := report(o); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"# Title\n\nbefore\n", "\nafter\n", "| 1000 | mixed | stock | 3 | 100 (90–120) |", "| shared | 1 | 1 | 2 |"} {
			if strings.Count(string(data), want) != 1 {
				t.Errorf("%q is there %d times in\n%s", want, strings.Count(string(data), want), data)
			}
		}
		if strings.Contains(string(data), "old") {
			t.Errorf("the old table is still there:\n%s", data)
		}
		if first != "" && first != string(data) {
			t.Errorf("a second report changed\n%s\nto\n%s", first, data)
		}
		first = string(data)
	}
	if plot, err := os.ReadFile(filepath.Join(dir, "scheduler-benchmark.svg")); err != nil || !strings.Contains(string(plot), "1000 mixed stock") {
		t.Errorf("plot: %v\n%s", err, plot)
	}
}

// TestSpread: pods of one Service on one node, and the difference between zones, are counted for each Service alone.
func TestSpread(t *testing.T) {
	b := &bindings{nodes: map[string]string{}, apps: map[string]string{}}
	for i, at := range []struct{ app, node string }{
		{"a", nodeName(0)}, {"a", nodeName(3)}, {"a", nodeName(1)}, {"a", nodeName(0)}, // zone-0 has three, zone-1 one, zone-2 none
		{"b", nodeName(0)}, {"b", nodeName(1)}, {"b", nodeName(2)},
	} {
		name := string(rune('p' + i))
		b.nodes[name], b.apps[name] = at.node, at.app
	}
	if most, skew := b.spread(); most != 2 || skew != 3 {
		t.Errorf("at most %d on a node, zones differ by %d; want 2 and 3", most, skew)
	}
}
