// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// watch knows which tests run, from the output of a test binary.
type watch struct {
	limit time.Duration

	mu     sync.Mutex
	tests  map[string]*test
	limits map[string]time.Duration
	line   []byte
	fired  bool
}

// test is a test that has begun and not ended.
type test struct {
	ran    time.Duration
	paused bool
}

func newWatch(limit time.Duration) *watch {
	return &watch{limit: limit, tests: map[string]*test{}, limits: map[string]time.Duration{}}
}

// copy passes the output on and reads it.
func (w *watch) copy(out io.Writer, in io.Reader) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			w.read(buf[:n])
			if _, werr := out.Write(buf[:n]); werr != nil {
				return werr
			}
		}
		if err != nil {
			return err
		}
	}
}

// maxLine is how much of a line is kept; the lines that matter are shorter.
const maxLine = 4 << 10

func (w *watch) read(data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			if room := maxLine - len(w.line); room > 0 {
				w.line = append(w.line, data[:min(room, len(data))]...)
			}
			return
		}
		w.event(string(append(w.line, data[:i]...)))
		w.line, data = w.line[:0], data[i+1:]
	}
}

// event reads a line such as "=== RUN   TestA/b" and "    --- PASS: TestA/b (0.00s)". With -json, a test binary puts ^V before it,
// also behind output that has not ended its line.
func (w *watch) event(line string) {
	if i := strings.LastIndexByte(line, 0x16); i >= 0 {
		line = line[i+1:]
	}
	f := strings.Fields(line)
	if len(f) < 3 {
		return
	}
	switch f[0] + " " + f[1] {
	case "=== RUN":
		w.tests[f[2]] = &test{}
	case "=== PAUSE", "=== CONT":
		if t, ok := w.tests[f[2]]; ok {
			t.paused = f[1] == "PAUSE"
		}
	case "=== LIMIT":
		if limit, err := time.ParseDuration(f[len(f)-1]); err == nil && len(f) == 4 {
			w.limits[f[2]] = limit
		}
	case "--- PASS:", "--- FAIL:", "--- SKIP:":
		delete(w.tests, f[2])
	}
}

// advance counts d of an idle machine for the tests that run. It returns which test hangs, once.
func (w *watch) advance(d time.Duration) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, t := range w.tests {
		if t.paused || w.hasSubtests(name) {
			continue
		}
		if t.ran += d; t.ran > w.of(name) && !w.fired {
			w.fired = true
			return fmt.Sprintf("%s has run for more than %v", name, w.of(name))
		}
	}
	return ""
}

func (w *watch) hasSubtests(name string) bool {
	for other := range w.tests {
		if strings.HasPrefix(other, name+"/") {
			return true
		}
	}
	return false
}

// of returns the limit of a test: its own, or that of the nearest test above it.
func (w *watch) of(name string) time.Duration {
	for {
		if limit, ok := w.limits[name]; ok {
			return limit
		}
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return w.limit
		}
		name = name[:i]
	}
}
