// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// names are the contestants that have a value in any of the rows.
func (r *results) names(o *options) (names []string) {
	all := []string{directName, floorName, relayName, tlsRelayName, sshName}
	for _, p := range o.pairs {
		all = append(all, p.name)
	}
	for _, n := range all {
		for _, by := range r.v {
			if len(by[n]) > 0 {
				names = append(names, n)
				break
			}
		}
	}
	return names
}

// print writes a table in Markdown: medians, and ratios to the baseline.
func (o *options) print(w io.Writer, mode string, res *results) {
	names := res.names(o)
	fmt.Fprintf(w, "\n### %s over UDS\n\n| measurement | %s |\n|---|%s\n", mode, strings.Join(names, " | "), strings.Repeat("--:|", len(names)))
	slices.SortFunc(res.order, func(a, b string) int { return rowOf(a) - rowOf(b) })
	for _, key := range res.order {
		fmt.Fprintf(w, "| %s |", key)
		base := median(res.v[key][upstream])
		for _, n := range names {
			v, ok := res.v[key][n]
			switch {
			case !ok:
				fmt.Fprint(w, " – |")
			case n == upstream || base == 0:
				fmt.Fprintf(w, " %.4g |", median(v))
			default:
				fmt.Fprintf(w, " %.4g (%.2fx) |", median(v), median(v)/base)
			}
		}
		fmt.Fprintln(w)
	}
}

// rowOf is the place of a row: as in the targets, then the others.
func rowOf(key string) int {
	for i, g := range goals {
		if g.key == key {
			return i
		}
	}
	for i, g := range goals { // what belongs to a row with a target stands with it
		if strings.HasPrefix(key, strings.Split(g.key, " ")[0]) {
			return i
		}
	}
	return len(goals)
}

// section returns the marks in the document between which the results of a mode stand.
func section(mode string) (begin, end string) {
	return "<!-- " + mode + ": written by make bench-tunnel -->", "<!-- end of " + mode + " -->"
}

// writeDocs puts the tables and plots into the documentation.
func (o *options) writeDocs(mode string, res *results) error {
	path := filepath.Join(o.docs, "tunnel-benchmark.md")
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := section(mode)
	head, rest, ok1 := strings.Cut(string(old), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s: the marks %q and %q are missing", path, begin, end)
	}
	var b strings.Builder
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Fprintf(&b, "%s%s\n\n## %s over UDS\n\nMeasured on %s, %d processors, %d repetitions of %s, load average at the end %s.\n", head, begin, mode,
		time.Now().UTC().Format("2006-01-02"), runtime.NumCPU(), o.reps, o.dur, strings.Join(strings.Fields(string(load))[:3], " "))
	printGoals(&b, mode, res)
	for _, p := range plots {
		svg := p.draw(res.names(o), mode, res)
		if svg == "" {
			continue
		}
		name := fmt.Sprintf("tunnel-%s-%s.svg", mode, p.file)
		if err := os.WriteFile(filepath.Join(o.docs, name), []byte(svg), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n![%s, %s](%s)\n", p.title, mode, name)
	}
	o.print(&b, mode, res)
	fmt.Fprintf(&b, "\n%s%s", end, tail)
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
