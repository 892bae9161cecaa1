// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// event is a line of test2json's output.
type event struct {
	Action, Package, Test, Output string
}

// id names a test, or a package where Test is empty.
type id struct{ Package, Test string }

// report is what a run, or several, had as results.
type report struct {
	results map[id][]string
	output  map[id][]string
}

func newReport() *report { return &report{results: map[id][]string{}, output: map[id][]string{}} }

func (r *report) readFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.read(f)
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 && line[0] == '{' {
			e := event{}
			if err := json.Unmarshal(line, &e); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
			r.add(e)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) add(e event) {
	key := id{e.Package, e.Test}
	switch e.Action {
	case "pass", "fail", "skip":
		r.results[key] = append(r.results[key], e.Action)
	case "output":
		if e.Test != "" && len(r.output[key]) < 50 {
			r.output[key] = append(r.output[key], e.Output)
		}
	}
}

// flaky returns the tests that failed and, when they ran again, passed, without the tests that failed because of a subtest.
func (r *report) flaky() []string {
	var names []string
	for key, results := range r.results {
		if key.Test == "" || !slices.Contains(results, "fail") || results[len(results)-1] != "pass" {
			continue
		}
		because := false
		for other, results := range r.results {
			because = because || other.Package == key.Package && strings.HasPrefix(other.Test, key.Test+"/") && slices.Contains(results, "fail")
		}
		if !because {
			names = append(names, key.Package+" "+key.Test)
		}
	}
	slices.Sort(names)
	return names
}

// location begins what a test logs.
var location = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// reason returns why a test was skipped: what it logged last.
func (r *report) reason(key id) string {
	for _, line := range slices.Backward(r.output[key]) {
		if at := location.FindString(line); at != "" {
			text := strings.TrimSpace(line[len(at):])
			// The layers of internal/testutil are reasons by themselves.
			for _, layer := range []string{"only in make test-all", "integration test"} {
				if strings.HasPrefix(text, layer+":") {
					return layer
				}
			}
			return text
		}
	}
	return "no reason given"
}

// String is the line of the whole run, and one for each reason why tests were skipped.
func (r *report) String() string {
	packages, empty, tests, subtests := map[string]bool{}, map[string]bool{}, 0, 0
	failed, reasons := 0, map[string]int{}
	for key, results := range r.results {
		last := results[len(results)-1]
		switch {
		case key.Test == "":
			packages[key.Package] = last != "skip"
		case strings.Contains(key.Test, "/"):
			subtests++
		default:
			tests++
		}
		if key.Test == "" {
			continue
		}
		switch last {
		case "fail":
			failed++
		case "skip":
			reasons[r.reason(key)]++
		case "pass":
			empty[key.Package] = false
		}
	}
	ran, nothing := 0, []string{}
	for p, has := range packages {
		if has {
			ran++
			if _, passed := empty[p]; !passed && r.hasTests(p) {
				nothing = append(nothing, p)
			}
		}
	}
	skipped := 0
	for _, n := range reasons {
		skipped += n
	}
	text := fmt.Sprintf("%d packages, %d tests and %d subtests: %d failed, %d skipped", ran, tests, subtests, failed, skipped)
	sorted := slices.SortedFunc(maps.Keys(reasons), func(a, b string) int { return cmp.Or(reasons[b]-reasons[a], cmp.Compare(a, b)) })
	for _, reason := range sorted {
		text += fmt.Sprintf("\n  %4d skipped: %s", reasons[reason], reason)
	}
	slices.Sort(nothing)
	for _, p := range nothing {
		text += "\n  no test of this package ran to its end: " + p
	}
	return text
}

func (r *report) hasTests(p string) bool {
	for key := range r.results {
		if key.Package == p && key.Test != "" {
			return true
		}
	}
	return false
}
