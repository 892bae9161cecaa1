// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/term"
)

// Style is what a writer can show.
type Style struct {
	// Color is false without a terminal, with TERM=dumb and with NO_COLOR. Width is the terminal's, 0 where lines may have any length.
	Color bool
	Width int
	// Live is true for terminals that can rewrite what they show.
	Live bool
}

// DefaultWidth is that of a terminal that does not tell its width.
const DefaultWidth = 80

// StyleOf looks at the writer and the environment. COLUMNS sets the width where there is no terminal.
func StyleOf(w io.Writer) Style {
	if !IsTerminal(w) {
		width, err := strconv.Atoi(os.Getenv("COLUMNS"))
		if err != nil || width < 20 {
			width = 0
		}
		return Style{Width: width}
	}
	live := os.Getenv("TERM") != "dumb"
	style := Style{Live: live, Color: live && os.Getenv("NO_COLOR") == "", Width: DefaultWidth}
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width >= 20 {
			style.Width = width
		}
	}
	return style
}
