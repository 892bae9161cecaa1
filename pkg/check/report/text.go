// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// Text prints one line per check. On a terminal the running check has a live line.
type Text struct {
	out   io.Writer
	live  bool
	color bool

	mu    sync.Mutex
	width int
	stop  chan struct{}
	done  chan struct{}
}

// NewText returns a Text that writes to out; live draws a spinner, color uses terminal colors.
func NewText(out io.Writer, live, color bool) *Text {
	return &Text{out: out, live: live, color: color}
}

const (
	green  = "32"
	red    = "31"
	yellow = "33"
	dim    = "2"
)

func (t *Text) paint(code, text string) string {
	if !t.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Begin prints what is checked.
func (t *Text) Begin(cluster string, checks []check.Check) {
	for _, c := range checks {
		t.width = max(t.width, utf8.RuneCountInString(c.Title))
	}
	t.printf("Verifying %s\n", cluster)
}

// Start draws the live line until Finish.
func (t *Text) Start(c check.Check) {
	if !t.live {
		return
	}
	t.stop, t.done = make(chan struct{}), make(chan struct{})
	go t.spin(c.Title, t.stop, t.done)
}

func (t *Text) spin(title string, stop, done chan struct{}) {
	defer close(done)
	frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	begin := time.Now()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	live := progress.Line{Out: t.out, Escapes: t.color}
	for i := 0; ; i++ {
		t.mu.Lock()
		live.Show(fmt.Sprintf(" %c %s %s", frames[i%len(frames)], title, t.paint(dim, fmt.Sprintf("%.0f s", time.Since(begin).Seconds()))))
		t.mu.Unlock()
		select {
		case <-stop:
			t.mu.Lock()
			live.Erase()
			t.mu.Unlock()
			return
		case <-ticker.C:
		}
	}
}

// Finish prints the check's line, and below it what is worth reading: measurements, the error, the hint.
func (t *Text) Finish(r check.Result) {
	if t.stop != nil {
		close(t.stop)
		<-t.done
		t.stop = nil
	}
	mark := map[check.Status]string{check.OK: t.paint(green, "✓"), check.Failed: t.paint(red, "✗"), check.Skipped: t.paint(yellow, "-")}[r.Status]
	if r.Status == check.OK && len(r.Warnings) > 0 {
		mark = t.paint(yellow, "!")
	}
	pad := strings.Repeat(" ", max(0, t.width-utf8.RuneCountInString(r.Title)))
	t.printf(" %s %s%s  %s\n", mark, r.Title, pad, t.paint(dim, fmt.Sprintf("%6.1f s  %s", r.Seconds, r.ID)))
	for _, w := range r.Warnings {
		t.printf("     %s %s\n", t.paint(yellow, "warning:"), indented(w))
	}
	switch r.Status {
	case check.OK:
		t.details(r, func(key string) bool { return worthReading[key] })
	case check.Failed:
		t.printf("     %s\n", indented(r.Error))
		if r.Hint != "" {
			t.printf("     %s %s\n", t.paint(yellow, "hint:"), r.Hint)
		}
		t.details(r, func(string) bool { return true })
	case check.Skipped:
		t.printf("     skipped: %s\n", indented(r.Error))
	}
}

// worthReading are the details that text shows even when the check passed: what was measured, and what it has not proved for this
// cluster alone. JSON has all.
var worthReading = map[string]bool{
	"version": true, "proof": true, "failed-dials": true, "restored": true, "takeover": true, "recovered-after": true, "bound-after-start": true, "pods": true, "holder": true,
	"lease-holder": true, "partition-taint": true,
}

func (t *Text) details(r check.Result, show func(key string) bool) {
	for _, key := range sortedKeys(r.Details) {
		if show(key) {
			t.printf("     %s\n", t.paint(dim, indented(key+": "+r.Details[key])))
		}
	}
}

// indented keeps lines of one text together, and takes out control characters: errors may quote untrusted input, which must not
// control the terminal.
func indented(s string) string {
	s = strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
	return strings.ReplaceAll(s, "\n", "\n     ")
}

// End prints the totals.
func (t *Text) End(r *check.Report) error {
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(r.Passed, "passed")
	add(r.Failed, "failed")
	add(r.Skipped, "skipped")
	if r.Interrupted {
		parts = append(parts, "interrupted")
	}
	t.printf("%s in %.1f s\n", strings.Join(parts, ", "), r.Seconds)
	if len(r.NotAsked) > 0 {
		t.printf("%s\n", t.paint(dim, fmt.Sprintf("skipped disruptive checks: %s (run them with --disruptive)", strings.Join(r.NotAsked, ", "))))
	}
	return nil
}

func (t *Text) printf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = fmt.Fprintf(t.out, format, args...)
}
