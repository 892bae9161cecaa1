// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// maxOutput is how much of a test's output is kept. Of more, the middle is left out.
const maxOutput = 64 << 10

// What stands for the name of a test if none can be named.
const (
	wholePackage = "(package)" // the package failed, but none of its tests: TestMain, or a data race between tests
	noBuild      = "(build)"
)

// event is what `go test -json` writes; see `go doc test2json` and `go help buildjson`.
type event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	ImportPath  string // of build-output
	FailedBuild string // of a package that could not be built
}

// failure is a test that failed in a round.
type failure struct {
	pkg, test string
	output    string
}

// result is what a round shows.
type result struct {
	packages int // that have ended
	tests    int // top-level tests that have passed or failed
	failures []failure
}

// collector reads the events.
type collector struct {
	rest     []byte // an incomplete line
	packages map[string]*packageEvents
	builds   map[string]*output
}

type packageEvents struct {
	ended, failed bool
	failedBuild   string
	output        output // of no test
	crash         output // from a panic on, whichever test it is attributed to
	tests         map[string]*testEvents
	order         []string
}

type testEvents struct {
	state  string // the last of run, pause, cont, pass, fail, and skip
	output output
}

func newCollector() *collector {
	return &collector{packages: map[string]*packageEvents{}, builds: map[string]*output{}}
}

// Write takes the standard output of go test.
func (c *collector) Write(p []byte) (int, error) {
	c.rest = append(c.rest, p...)
	for {
		line, rest, found := bytes.Cut(c.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		e := event{}
		if json.Unmarshal(line, &e) == nil {
			c.add(e)
		}
		c.rest = rest
	}
}

func (c *collector) add(e event) {
	if e.Action == "build-output" {
		if c.builds[e.ImportPath] == nil {
			c.builds[e.ImportPath] = &output{}
		}
		c.builds[e.ImportPath].add(e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	p := c.packages[e.Package]
	if p == nil {
		p = &packageEvents{tests: map[string]*testEvents{}}
		c.packages[e.Package] = p
	}
	if e.Test == "" {
		p.add(e)
		return
	}
	t := p.tests[e.Test]
	if t == nil {
		t = &testEvents{}
		p.tests[e.Test] = t
		p.order = append(p.order, e.Test)
	}
	if e.Action == "output" {
		t.output.add(e.Output)
		p.noteCrash(e.Output)
		return
	}
	t.state = e.Action
	if e.Action == "pass" || e.Action == "skip" {
		t.output = output{}
	}
}

func (p *packageEvents) add(e event) {
	switch e.Action {
	case "output":
		p.output.add(e.Output)
		p.noteCrash(e.Output)
	case "pass", "fail", "skip":
		p.ended, p.failed, p.failedBuild = true, e.Action == "fail", e.FailedBuild
	}
}

// noteCrash keeps what a dying test binary prints. Go attributes it to the test that has written last.
func (p *packageEvents) noteCrash(line string) {
	if p.crash.size > 0 || strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
		p.crash.add(line)
	}
}

// result returns what has failed. If the round was interrupted, tests without an end are no failures.
func (c *collector) result(interrupted bool) *result {
	r := &result{}
	for _, name := range sortedKeys(c.packages) {
		p := c.packages[name]
		if p.ended {
			r.packages++
		}
		for _, test := range p.order {
			if state := p.tests[test].state; !strings.Contains(test, "/") && (state == "pass" || state == "fail") {
				r.tests++
			}
		}
		for _, f := range p.failures(c.builds, interrupted) {
			f.pkg = name
			r.failures = append(r.failures, f)
		}
	}
	return r
}

func (p *packageEvents) failures(builds map[string]*output, interrupted bool) []failure {
	if p.failedBuild != "" {
		text := p.output.String()
		if b := builds[p.failedBuild]; b != nil {
			text = b.String() + text
		}
		return []failure{{test: noBuild, output: text}}
	}
	var found []failure
	for _, name := range p.order {
		if t := p.tests[name]; t.state == "fail" && !p.onlyParent(name) {
			found = append(found, failure{test: name, output: t.output.String()})
		}
	}
	// Package events of an interrupted round: the binary was ended, which is a failure of none of its tests.
	if interrupted || !p.failed {
		return found
	}
	// A panic that names its test ends the others, too: they are no failures. A time limit ends those that hang.
	if len(found) == 0 || strings.HasPrefix(p.crash.head, "panic: test timed out") {
		found = append(found, p.unfinished()...)
	}
	if len(found) == 0 {
		found = append(found, failure{test: wholePackage, output: p.output.String()})
	}
	return found
}

// unfinished returns the tests that were running when their binary ended, without the parents of others.
func (p *packageEvents) unfinished() []failure {
	running := func(name string) bool { return p.tests[name].state == "run" || p.tests[name].state == "cont" }
	var found []failure
	for _, name := range p.order {
		isParent := slices.ContainsFunc(p.order, func(n string) bool { return strings.HasPrefix(n, name+"/") && running(n) })
		if !running(name) || isParent {
			continue
		}
		text := p.tests[name].output.String()
		if p.crash.head != "" && !strings.Contains(text, p.crash.head[:min(len(p.crash.head), 40)]) {
			text += p.crash.String()
		} else if p.crash.head == "" {
			text += p.output.String()
		}
		found = append(found, failure{test: name, output: text})
	}
	return found
}

// onlyParent reports whether a test failed only because a subtest failed: it has printed nothing of its own.
func (p *packageEvents) onlyParent(name string) bool {
	if !slices.ContainsFunc(p.order, func(n string) bool { return strings.HasPrefix(n, name+"/") && p.tests[n].state == "fail" }) {
		return false
	}
	for line := range strings.Lines(p.tests[name].output.String()) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			return false
		}
	}
	return true
}

// output is a text of which the middle is left out if it is too long.
type output struct {
	head string
	tail []byte
	size int
}

func (o *output) add(text string) {
	o.size += len(text)
	if len(o.tail) == 0 && len(o.head)+len(text) <= maxOutput/2 {
		o.head += text
		return
	}
	o.tail = append(o.tail, text...)
	if len(o.tail) > 2*maxOutput {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-maxOutput/2:]...)
	}
}

func (o *output) String() string {
	tail := o.tail[max(0, len(o.tail)-maxOutput/2):]
	if left := o.size - len(o.head) - len(tail); left > 0 {
		return o.head + "\n... " + grouped(left) + " bytes are left out ...\n" + string(tail)
	}
	return o.head + string(tail)
}
