package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// report writes the table and the plot of all results so far.
func report(o options) error {
	data, err := os.ReadFile(o.results)
	if err != nil {
		return err
	}
	var all []result
	for line := range bytes.Lines(data) {
		var r result
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("%s: %w", o.results, err)
		}
		all = append(all, r)
	}
	rows := summarise(all)
	return errors.Join(
		os.WriteFile(filepath.Join(o.docs, "scheduler-benchmark-table.md"), []byte(table(rows)), 0o644),
		os.WriteFile(filepath.Join(o.docs, "scheduler-benchmark.svg"), []byte(plot(rows)), 0o644),
	)
}

// row is the median of all repetitions.
type row struct {
	result
	runs     int
	min, max float64 // pods per second
}

func summarise(all []result) []row {
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
	out.PeakMiB = pick(func(r result) float64 { return r.PeakMiB })
	out.NodesUsed = int(pick(func(r result) float64 { return float64(r.NodesUsed) }))
	out.HintsUsed = pick(func(r result) float64 { return r.HintsUsed })
	out.Open = slices.Clone(same[0].Open)
	for i := range out.Open {
		at := func(r result) openResult {
			if i < len(r.Open) {
				return r.Open[i]
			}
			return openResult{}
		}
		out.Open[i].P50 = pick(func(r result) float64 { return at(r).P50 })
		out.Open[i].P99 = pick(func(r result) float64 { return at(r).P99 })
	}
	out.min, out.max = out.PodsPerSecond, out.PodsPerSecond
	for _, r := range same {
		out.min, out.max = min(out.min, r.PodsPerSecond), max(out.max, r.PodsPerSecond)
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
	b.WriteString("| nodes | workload | scheduler | runs | pods/s (range) | CPU ms/pod | create-to-bind p50 / p99 in ms at 50, 100, 300 pods/s | peak RSS MiB | nodes used | hints used |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		var open []string
		for _, o := range r.Open {
			open = append(open, fmt.Sprintf("%.0f / %.0f", o.P50, o.P99))
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %d | %.0f (%.0f–%.0f) | %.2f | %s | %.0f | %d | %.0f of %d |\n", r.Nodes, r.Workload, r.Scheduler, r.runs,
			r.PodsPerSecond, r.min, r.max, r.CPUMillisPerPod, strings.Join(open, ", "), r.PeakMiB, r.NodesUsed, r.HintsUsed, r.Pods)
	}
	return b.String()
}

// colours are readable on white and on black.
var colours = map[string]string{documented: "#b0413e", stock: "#7a869a", ours: "#2f7ed8"}

// plot draws pods per second and CPU per pod as bars, a group for each workload and size.
func plot(rows []row) string {
	const left, rowHeight, width = 150, 18, 300
	var b strings.Builder
	height := 60 + len(rows)*rowHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="900" height="%d" font-family="sans-serif" font-size="11" fill="#666">`+"\n", height)
	draw := func(x int, title string, value func(r row) float64, format string) {
		var largest float64
		for _, r := range rows {
			largest = max(largest, value(r))
		}
		fmt.Fprintf(&b, `<text x="%d" y="20" font-size="13">%s</text>`+"\n", x, title)
		for i, r := range rows {
			y := 35 + i*rowHeight
			length := value(r) / max(largest, 1e-9) * width
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="12" fill="%s"/><text x="%.1f" y="%d">`+format+"</text>\n",
				x, y, length, colours[r.Scheduler], float64(x)+length+4, y+10, value(r))
		}
	}
	for i, r := range rows {
		fmt.Fprintf(&b, `<text x="4" y="%d">%d %s %s</text>`+"\n", 45+i*rowHeight, r.Nodes, r.Workload, r.Scheduler)
	}
	draw(left, "pods bound per second", func(r row) float64 { return r.PodsPerSecond }, "%.0f")
	draw(left+width+70, "scheduler CPU, ms per pod", func(r row) float64 { return r.CPUMillisPerPod }, "%.2f")
	b.WriteString("</svg>\n")
	return b.String()
}
