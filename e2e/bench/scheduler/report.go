// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// page is the document whose marked parts are replaced.
	page = "scheduler-benchmark.md"
	// plotFile is next to it.
	plotFile = "scheduler-benchmark.svg"
)

// report writes tables and plot of the results so far.
func report(o options) error {
	all, err := read[result](o.results)
	if err != nil {
		return err
	}
	two, err := read[togetherResult](togetherFile(o))
	if err != nil {
		return err
	}
	if len(all) > 0 {
		used := usableResults(all, o.othersLimit)
		rows := summarize(used)
		text := provenance(all, used, o) + "\n" + goalTable(rows) + "\n" + ceiling(rows) + "\n" + table(rows) + "\n![Pods per second and CPU per Pod](" + plotFile + ")\n"
		if err := errors.Join(write(o, "results", text), os.WriteFile(filepath.Join(o.docs, plotFile), []byte(plot(rows)), 0o644)); err != nil {
			return err
		}
	}
	if len(two) > 0 {
		return write(o, "together", togetherTable(two))
	}
	return nil
}

// read is all results of a file; none if there is no file.
func read[R any](path string) ([]R, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []R
	for line := range bytes.Lines(data) {
		var r R
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// write replaces the text between a page's marks, or creates a page with only the text if there is no page.
func write(o options, mark, text string) error {
	path := filepath.Join(o.docs, page)
	begin, end := "<!-- "+mark+": written by make bench-scheduler -->\n", "<!-- end of "+mark+" -->\n"
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	old := string(data)
	from, to := strings.Index(old, begin), strings.Index(old, end)
	if from < 0 || to < from {
		return os.WriteFile(path, []byte(old+begin+"\n"+text+"\n"+end), 0o644)
	}
	return os.WriteFile(path, []byte(old[:from]+begin+"\n"+text+"\n"+old[to:]), 0o644)
}

// usableResults are the results that may be shown in one table: those of the machine of the latest result and of each
// scheduler's latest build, without runs during which the machine had other load.
func usableResults(all []result, limit float64) []result {
	kind := func(r result) string { return r.Workload + "/" + r.Scheduler }
	last, builds := all[len(all)-1], map[string]string{}
	for _, r := range all {
		builds[kind(r)] = r.Build
	}
	var used []result
	for _, r := range all {
		if r.Machine == last.Machine && r.Build == builds[kind(r)] && r.Others <= limit {
			used = append(used, r)
		}
	}
	return used
}

// provenance says when and where the results were measured, and which results were left out.
func provenance(all, used []result, o options) string {
	text := fmt.Sprintf("%d runs", len(used))
	if len(used) > 0 {
		first, last, most := used[0].When, used[0].When, 0.0
		for _, r := range used {
			if r.When.Before(first) {
				first = r.When
			}
			if r.When.After(last) {
				last = r.When
			}
			most = max(most, r.Others)
		}
		text += fmt.Sprintf(" on %s, from %s to %s UTC; other work took at most %.0f %% of the machine.",
			used[0].Machine, first.Format("2006-01-02 15:04"), last.Format("2006-01-02 15:04"), 100*most)
	}
	if left := len(all) - len(used); left > 0 {
		text += fmt.Sprintf(" %d further runs are left out: of older builds, of another machine, or with more than %.0f %% for other work.", left, 100*o.othersLimit)
	}
	return text + "\n"
}

// row is the median of all repetitions.
type row struct {
	result
	runs     int
	min, max float64 // pods per second
}

func summarize(all []result) []row {
	var rows []row
	var sizes []int
	for _, r := range all {
		if !slices.Contains(sizes, r.Nodes) {
			sizes = append(sizes, r.Nodes)
		}
	}
	slices.Sort(sizes)
	for _, nodes := range sizes {
		for _, c := range contenders() {
			var same []result
			for _, r := range all {
				if r.Nodes == nodes && r.Workload == c.workload && r.Scheduler == c.name {
					same = append(same, r)
				}
			}
			if len(same) > 0 {
				rows = append(rows, medians(same))
			}
		}
	}
	return rows
}

func medians(same []result) row {
	pick := func(value func(r result) float64) float64 {
		var list []float64
		for _, r := range same {
			list = append(list, value(r))
		}
		return median(list)
	}
	out := row{result: same[0], runs: len(same)}
	out.PodsPerSecond = pick(func(r result) float64 { return r.PodsPerSecond })
	out.CPUMillisPerPod = pick(func(r result) float64 { return r.CPUMillisPerPod })
	out.ServerMillisPerPod = pick(func(r result) float64 { return r.ServerMillisPerPod })
	out.BindMillisPerPod = pick(func(r result) float64 { return r.BindMillisPerPod })
	out.EventSeconds = pick(func(r result) float64 { return r.EventSeconds })
	out.PeakMiB = pick(func(r result) float64 { return r.PeakMiB })
	out.NodesUsed = int(pick(func(r result) float64 { return float64(r.NodesUsed) }))
	out.MostOnNode = int(pick(func(r result) float64 { return float64(r.MostOnNode) }))
	out.ZoneSkew = int(pick(func(r result) float64 { return float64(r.ZoneSkew) }))
	out.HintsUsed = pick(func(r result) float64 { return r.HintsUsed })
	out.Open = openMedians(same)
	out.min, out.max = out.PodsPerSecond, out.PodsPerSecond
	for _, r := range same {
		out.min, out.max = min(out.min, r.PodsPerSecond), max(out.max, r.PodsPerSecond)
	}
	return out
}

// openMedians are the medians of each rate, by rate: runs need not have had the same ones.
func openMedians(same []result) []openResult {
	p50, p99 := map[int][]float64{}, map[int][]float64{}
	var rates []int
	for _, r := range same {
		for _, o := range r.Open {
			if !slices.Contains(rates, o.Rate) {
				rates = append(rates, o.Rate)
			}
			p50[o.Rate], p99[o.Rate] = append(p50[o.Rate], o.P50), append(p99[o.Rate], o.P99)
		}
	}
	slices.Sort(rates)
	var out []openResult
	for _, rate := range rates {
		out = append(out, openResult{Rate: rate, P50: median(p50[rate]), P99: median(p99[rate])})
	}
	return out
}

func median(list []float64) float64 {
	slices.Sort(list)
	n := len(list)
	if n%2 == 1 {
		return list[n/2]
	}
	return (list[n/2-1] + list[n/2]) / 2
}

func table(rows []row) string {
	var b strings.Builder
	b.WriteString("| nodes | workload | scheduler | runs | pods/s (range) | CPU ms/pod | API server and etcd, CPU ms/pod | last event after s | create-to-bind p50 / p99 in ms | peak RSS MiB | nodes used | of a Service: most on a node, zones differ by | hints used |\n")
	b.WriteString("|--:|---|---|--:|--:|--:|--:|--:|---|--:|--:|--:|--:|\n")
	for _, r := range rows {
		var open []string
		for _, o := range r.Open {
			open = append(open, fmt.Sprintf("at %d/s %.0f / %.0f", o.Rate, o.P50, o.P99))
		}
		spread := ""
		if r.Workload == services {
			spread = fmt.Sprintf("%d, %d", r.MostOnNode, r.ZoneSkew)
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %d | %.0f (%.0f–%.0f) | %.2f | %.2f | %.1f | %s | %.0f | %d | %s | %.0f of %d |\n", r.Nodes, r.Workload, r.Scheduler, r.runs,
			r.PodsPerSecond, r.min, r.max, r.CPUMillisPerPod, r.ServerMillisPerPod, r.EventSeconds, strings.Join(open, ", "), r.PeakMiB, r.NodesUsed, spread, r.HintsUsed, r.Pods)
	}
	return b.String()
}
