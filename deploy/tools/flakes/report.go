// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// report gathers the rounds.
type report struct {
	rounds   int // to run
	done     int // complete rounds
	cut      bool
	packages int
	tests    int
	text     strings.Builder
	failures map[string]int // the number of rounds by package and test
}

// add takes a round and returns its text.
func (r *report) add(c conditions, res *result, command string, took time.Duration, cut bool) string {
	if r.failures == nil {
		r.failures = map[string]int{}
	}
	if cut {
		r.cut = true
	} else {
		r.done++
	}
	r.packages, r.tests = max(r.packages, res.packages), max(r.tests, res.tests)
	var text strings.Builder
	note := ""
	if cut {
		note = ", not complete"
	}
	fmt.Fprintf(&text, "round %d of %d: %s: %s packages, %s tests, %d failed, %s%s\n",
		c.round, r.rounds, c, grouped(res.packages), grouped(res.tests), len(res.failures), took.Round(time.Second), note)
	for _, f := range res.failures {
		r.failures[f.pkg+" "+f.test]++
		fmt.Fprintf(&text, "FAIL %s %s\n    round %d, %s\n    %s%s %s\n", f.pkg, f.test, c.round, c, command, runFlag(f.test), f.pkg)
		for line := range strings.Lines(f.output) {
			text.WriteString("    | " + strings.TrimRight(line, "\n") + "\n")
		}
	}
	r.text.WriteString(text.String())
	return text.String()
}

// summary is the last line, with a line for each test that failed before it.
func (r *report) summary() string {
	var text strings.Builder
	chance, always := 0, 0
	for _, test := range slices.SortedFunc(maps.Keys(r.failures), func(a, b string) int {
		return cmp.Or(r.failures[b]-r.failures[a], strings.Compare(a, b))
	}) {
		fmt.Fprintf(&text, "failed in %d of %d rounds: %s\n", r.failures[test], max(r.done, r.failures[test]), test)
		if r.failures[test] >= r.done && r.done > 1 {
			always++
		} else {
			chance++
		}
	}
	rounds := fmt.Sprintf("%d rounds", r.done)
	if r.done < r.rounds {
		rounds = fmt.Sprintf("%d of %d rounds", r.done, r.rounds)
		if r.cut {
			rounds += " and a part of one"
		}
	}
	fmt.Fprintf(&text, "%s, %s packages, %s tests each: %d failed by chance", rounds, grouped(r.packages), grouped(r.tests), chance)
	if always > 0 {
		fmt.Fprintf(&text, ", %d in every round", always)
	}
	return text.String()
}

func (r *report) write(path string) error {
	if path == "" {
		return nil
	}
	return writeFile(path, r.text.String()+r.summary()+"\n")
}

// runFlag selects the top-level test of a name. If the cause is another test, the command shows nothing: run it without the flag.
func runFlag(test string) string {
	if test == wholePackage || test == noBuild {
		return ""
	}
	name, _, _ := strings.Cut(test, "/")
	return " -run='^" + name + "$'"
}

// grouped writes 1840 as 1,840.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
