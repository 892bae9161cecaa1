// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// survivor is an entry of survivors.txt.
type survivor struct {
	pkg, function string
	was, is       string
	reason        string
}

func (s survivor) key() string { return strings.Join([]string{s.pkg, s.function, s.was, s.is}, "\n") }

func keyOf(pkg string, m *mutant) string {
	return survivor{pkg: pkg, function: m.function, was: m.was, is: m.is}.key()
}

// survivors are the known ones.
type survivors struct {
	file    string
	entries map[string]survivor
}

// readSurvivors reads blocks of four lines: the package and the function, "- " with the code, "+ " with the mutant, and "= " with
// the reason. Lines that begin with # are comments.
func readSurvivors(file string) (*survivors, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	k := &survivors{file: file, entries: map[string]survivor{}}
	var block []string
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		prefix := []string{"", "- ", "+ ", "= "}[len(block)]
		text, found := strings.CutPrefix(line+" ", prefix) // a mutant may be an empty line
		if !found {
			return nil, fmt.Errorf("%s:%d: the line must begin with %q", file, i+1, prefix)
		}
		block = append(block, strings.TrimSpace(text))
		if len(block) < 4 {
			continue
		}
		pkg, function, _ := strings.Cut(block[0], " ")
		s := survivor{pkg: pkg, function: function, was: block[1], is: block[2], reason: block[3]}
		if s.function == "" || s.reason == "" {
			return nil, fmt.Errorf("%s:%d: an entry has no function or no reason", file, i+1)
		}
		if _, double := k.entries[s.key()]; double {
			return nil, fmt.Errorf("%s:%d: the entry is there twice", file, i+1)
		}
		k.entries[s.key()] = s
		block = nil
	}
	if len(block) > 0 {
		return nil, fmt.Errorf("%s: the last entry is not complete", file)
	}
	return k, nil
}

// missing returns the entries for a package that are none of its mutants.
func (k *survivors) missing(pkg string, all []*mutant) []survivor {
	is := map[string]bool{}
	for _, m := range all {
		is[keyOf(pkg, m)] = true
	}
	var found []survivor
	for key, s := range k.entries {
		if s.pkg == pkg && !is[key] {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b survivor) int { return strings.Compare(a.key(), b.key()) })
	return found
}

// report is about one package.
type report struct {
	pkg     string
	known   *survivors
	killed  int
	byTime  int
	listed  int
	left    []leftMutant // survivors that are not listed
	outdone []leftMutant // listed mutants that a test kills
	stale   []survivor   // entries without a mutant
}

type leftMutant struct {
	*mutant
	res result
}

func (r *report) add(m *mutant, res result) {
	_, listed := r.known.entries[keyOf(r.pkg, m)]
	switch {
	case res.killed:
		r.killed++
		if res.by == byTime {
			r.byTime++
		}
		if listed {
			r.outdone = append(r.outdone, leftMutant{m, res})
		}
	case listed:
		r.listed++
	default:
		r.left = append(r.left, leftMutant{m, res})
	}
}

func (r *report) total() int { return r.killed + r.listed + len(r.left) }

func (r *report) share() float64 {
	if r.total() == 0 {
		return 100
	}
	return 100 * float64(r.killed) / float64(r.total())
}

func (r *report) String() string {
	var b strings.Builder
	show := func(list []leftMutant) {
		slices.SortFunc(list, func(x, y leftMutant) int {
			return cmp.Or(strings.Compare(x.file, y.file), x.start-y.start, strings.Compare(x.is, y.is))
		})
		for _, l := range list {
			fmt.Fprintf(&b, "# %s:%d: %s\n%s %s\n%s\n", filepath.Join(r.pkg, filepath.Base(l.file)), l.line, l.res, r.pkg, l.function, l.diff())
		}
	}
	show(r.left)
	if len(r.outdone) > 0 {
		fmt.Fprintf(&b, "# Entries of %s that a test kills: remove them.\n", r.known.file)
		show(r.outdone)
	}
	fmt.Fprintf(&b, "%s: %d of %d mutants killed (%.1f %%), %d of them by the time limit; %d survivors in %s, %d others\n",
		r.pkg, r.killed, r.total(), r.share(), r.byTime, r.listed, filepath.Base(r.known.file), len(r.left))
	return b.String()
}

// verdict returns what is wrong.
func (r *report) verdict(least float64) []error {
	var errs []error
	if r.share() < least {
		errs = append(errs, fmt.Errorf("%s: tests kill %.1f %% of the mutants, less than %g %%: add tests", r.pkg, r.share(), least))
	}
	if len(r.left) > 0 {
		errs = append(errs, fmt.Errorf("%s: %d survivors are not in %s: add tests, or entries with a reason", r.pkg, len(r.left), r.known.file))
	}
	for _, s := range r.stale {
		errs = append(errs, errors.New(r.known.file+": no such mutant, remove the entry: "+strings.ReplaceAll(s.key(), "\n", " | ")))
	}
	return errs
}
