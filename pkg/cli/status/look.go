// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/observe/overview"
)

// refresh is the pause between two looks with --watch, retry with --wait.
const (
	refresh = 2 * time.Second
	retry   = 200 * time.Millisecond
)

// eraseScreen moves a terminal's cursor home and erases the screen.
const eraseScreen = "\x1b[H\x1b[2J"

// look is what one look at a cluster shows.
type look struct {
	report report
	human  func(io.Writer) error
	// verdict is nil for a healthy cluster, else ErrUnhealthy or ErrUnknown.
	verdict error
}

// notes reports whether something is not ready, although the cluster is healthy.
func (l look) notes() bool { return l.report.Overview != nil && len(l.report.Overview.Notes) > 0 }

// taker takes a look. An error means that there is nothing to show.
type taker func(context.Context) (look, error)

// write knows the format wide in addition to ui.Write's.
func (o *options) write(out io.Writer, l look) error {
	format := o.output
	if format == wide {
		format = ""
	}
	return ui.Write(out, format, l.report, l.human)
}

// style is for the output's width.
func (o *options) style() overview.Style {
	return overview.Style{Wide: o.output == wide, Width: ui.StyleOf(o.streams.Out).Width}
}

// once shows the first look that is good, or the last one before the time is up.
func (o *options) once(ctx context.Context, take taker) error {
	deadline := time.Now().Add(o.wait)
	for {
		l, err := take(ctx)
		if err != nil {
			return err
		}
		if l.verdict == nil && !l.notes() || !time.Now().Before(deadline) {
			if err := o.write(o.streams.Out, l); err != nil {
				return err
			}
			return l.verdict
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retry):
		}
	}
}

// watching repeats looks until the user interrupts it. A live terminal is cleared when the next look is complete, and gets it in one write. Other
// outputs get documents: YAML and tables with a line between them, JSON without one.
func (o *options) watching(ctx context.Context, take taker, live bool) error {
	for first := true; ; first = false {
		l, err := take(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the user has seen enough
		}
		if err != nil {
			return err
		}
		var text bytes.Buffer
		switch {
		case live:
			text.WriteString(eraseScreen)
		case !first && o.output != "json":
			text.WriteString("---\n")
		}
		if err := o.write(&text, l); err != nil {
			return err
		}
		if _, err := o.streams.Out.Write(text.Bytes()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.pause):
		}
	}
}
