// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Line is the last line of a terminal, which is rewritten in place: without escape sequences, blanks overwrite what is left of the text before. A
// text has to fit into the terminal.
type Line struct {
	Out     io.Writer
	Escapes bool

	shown int
}

// Show replaces the line.
func (l *Line) Show(text string) {
	if l.Escapes {
		_, _ = io.WriteString(l.Out, "\r\x1b[K"+text)
		return
	}
	n := utf8.RuneCountInString(text)
	_, _ = io.WriteString(l.Out, "\r"+text+strings.Repeat(" ", max(0, l.shown-n)))
	l.shown = n
}

// Erase leaves an empty line.
func (l *Line) Erase() {
	l.Show("")
	if !l.Escapes {
		_, _ = io.WriteString(l.Out, "\r")
	}
}
