// SPDX-License-Identifier: Apache-2.0

// Package ui formats the output that people read: the progress of long commands
// ([NewProgress]) and errors ([PrintError]).
//
// On a terminal the running step shows a spinner; elsewhere every step is one line
// when it ends. NO_COLOR switches colors and other escape sequences off.
// Progress goes to standard error, results go to standard output.
package ui

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/term"

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// Progress shows steps on a terminal or in a log.
type Progress struct {
	out   io.Writer
	live  bool // spinner and rewriting of the line
	color bool
	quiet bool

	mu     sync.Mutex
	step   string
	detail string
	began  time.Time
	stop   chan struct{}
	ended  chan struct{}
}

var _ progress.Reporter = (*Progress)(nil)

// NewProgress writes to out, normally standard error. quiet shows failures only.
func NewProgress(out io.Writer, quiet bool) *Progress {
	style := StyleOf(out)
	return &Progress{out: out, live: style.Live && !quiet, color: style.Color, quiet: quiet}
}

// IsTerminal reports whether a person looks at the writer.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// spinTime is the time between two frames of the spinner.
const spinTime = 100 * time.Millisecond

var spinner = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

// Begin starts a step.
func (p *Progress) Begin(step string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step, p.detail, p.began = step, "", time.Now()
	if !p.live {
		// A step that takes minutes must not look like a hang in a log.
		if !p.quiet {
			_, _ = fmt.Fprintf(p.out, " • %s ...\n", step)
		}
		return
	}
	p.stop, p.ended = make(chan struct{}), make(chan struct{})
	go p.spin(p.stop, p.ended)
}

// Detail says what the step is doing; it is shown on terminals only.
func (p *Progress) Detail(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.detail = fmt.Sprintf(format, args...)
}

// End finishes the step.
func (p *Progress) End(result string, err error) {
	p.mu.Lock()
	step, stop, ended := p.step, p.stop, p.ended
	p.stop = nil
	p.mu.Unlock()
	if stop != nil {
		close(stop)
		<-ended
	}
	if result != "" {
		result = " (" + result + ")"
	}
	mark := p.paint("32", "✓")
	if err != nil {
		mark, result = p.paint("31", "✗"), ""
	} else if p.quiet {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.out, " %s %s%s\n", mark, step, p.paint("2", result))
}

// Note shows a remark between steps.
func (p *Progress) Note(text string) {
	if p.quiet {
		return
	}
	_, _ = fmt.Fprintf(p.out, " %s %s\n", p.paint("33", "!"), strings.ReplaceAll(text, "\n", "\n   "))
}

// spin redraws the line until stop closes, then clears it.
func (p *Progress) spin(stop, ended chan struct{}) {
	defer close(ended)
	tick := time.NewTicker(spinTime)
	defer tick.Stop()
	live := progress.Line{Out: p.out, Escapes: p.color}
	for i := 0; ; i++ {
		p.mu.Lock()
		line := fmt.Sprintf(" %c %s", spinner[i%len(spinner)], p.step)
		if seconds := int(time.Since(p.began).Seconds()); seconds >= 2 {
			line += fmt.Sprintf(" %ds", seconds)
		}
		if p.detail != "" {
			line += ", " + p.detail
		}
		p.mu.Unlock()
		live.Show(p.fit(line))
		select {
		case <-stop:
			live.Erase()
			return
		case <-tick.C:
		}
	}
}

// fit cuts a line to the terminal's width: a wrapped line could not be redrawn.
func (p *Progress) fit(line string) string {
	width := 80
	if f, ok := p.out.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			width = w
		}
	}
	if runes := []rune(line); len(runes) >= width {
		return string(runes[:max(0, width-1)])
	}
	return line
}

func (p *Progress) paint(code, text string) string {
	if !p.color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// PrintError writes an error for people: its first line after "fairlead: ", the
// others indented.
func PrintError(out io.Writer, err error) {
	text := strings.Map(func(r rune) rune {
		// Errors quote logs and answers of servers, which must not control the terminal.
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return '?'
		}
		return r
	}, strings.TrimSpace(err.Error()))
	// Advice names the program as it can be typed here.
	text = strings.ReplaceAll(text, `"fairlead `, `"`+Self()+" ")
	_, _ = fmt.Fprintf(out, "fairlead: %s\n", strings.ReplaceAll(text, "\n", "\n  "))
}
