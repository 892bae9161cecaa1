// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kindRuns is what the tests on kind have said, by directory. A cluster takes minutes to come up, so that the tests of a
// directory are one run, which the seed shuffles. The row of a fault is made from the part of its own tests.
type kindRuns map[string]string

// onKind runs the tests of faults on kind, one directory after another.
func onKind(ctx context.Context, faults []fault, seed uint64) kindRuns {
	cases := map[string][]testCase{}
	var dirs []string
	for _, f := range faults {
		for _, c := range f.Kind {
			if cases[c.Dir] == nil {
				dirs = append(dirs, c.Dir)
			}
			cases[c.Dir] = append(cases[c.Dir], c)
		}
	}
	runs := kindRuns{}
	for _, dir := range dirs {
		cmd := exec.CommandContext(ctx, "go", "test", "-count", "1", "-timeout", "60m", "-v", "-shuffle", shuffle(seed), "-run", together(cases[dir]), "./"+dir)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // the tests get the same signal and remove their cluster
		cmd.WaitDelay = 3 * time.Minute
		fmt.Fprintf(os.Stderr, "%s: the tests take minutes, with those of all faults in %s\n", strings.Join(cmd.Args, " "), dir)
		text, err := cmd.CombinedOutput()
		runs[dir] = string(text)
		if err != nil {
			runs[dir] += fmt.Sprintf("%s: %v\n", strings.Join(cmd.Args, " "), err)
		}
	}
	return runs
}

// shuffle is the seed as go test takes it, which is signed.
func shuffle(seed uint64) string { return strconv.FormatUint(seed>>1, 10) }

// together is for "go test -run": the tests of all cases.
func together(cases []testCase) string {
	var names []string
	for _, c := range cases {
		if !slices.Contains(names, c.Run) {
			names = append(names, c.Run)
		}
	}
	return "^(" + strings.Join(names, "|") + ")"
}

// try makes the row of a fault from what its tests have said.
func (r kindRuns) try(f fault, out io.Writer) bool {
	f.Measured = true // all tests on kind log the unavailability
	worst, took, result, said := time.Duration(0), time.Duration(0), "met", ""
	for _, c := range f.Kind {
		text, failed := c.part(r[c.Dir])
		worst, took = max(worst, longest([]byte(text))), took+lasted(text)
		var err error
		if failed {
			err = errors.New("a test failed")
		}
		if got := c.judge([]byte(text), err); got != "met" {
			result = got
			if text == "" {
				text = r[c.Dir] // the cluster did not come up
			}
			said += fmt.Sprintf("\n%s, %s:\n%s", c.Dir, c.Run, text)
		}
	}
	return f.report(out, result, said, took, worst)
}

var (
	// begun is the line with which a test begins that is no subtest.
	begun = regexp.MustCompile(`(?m)^=== RUN   ([^/\s]+)$`)
	// over is how such a test ended, and after how many seconds.
	over = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): \S+ \(([0-9.]+)s\)`)
)

// part is what the tests of a case have said in a run of more tests, which ran one after another, and whether one failed.
func (c testCase) part(text string) (own string, failed bool) {
	name := regexp.MustCompile("^(" + c.Run + ")")
	all := begun.FindAllStringSubmatchIndex(text, -1)
	for i, m := range all {
		end := len(text)
		if i+1 < len(all) {
			end = all[i+1][0]
		}
		if name.MatchString(text[m[2]:m[3]]) {
			own += text[m[0]:end]
		}
	}
	return own, strings.Contains(own, "--- FAIL: ")
}

// lasted is how long the tests took.
func lasted(text string) (sum time.Duration) {
	for _, m := range over.FindAllStringSubmatch(text, -1) {
		if d, err := time.ParseDuration(m[2] + "s"); err == nil {
			sum += d
		}
	}
	return sum
}
