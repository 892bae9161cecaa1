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
	// Color is false without a terminal and with NO_COLOR. Width is the terminal's, 0 where lines may have any length.
	Color bool
	Width int
}

// StyleOf looks at the writer and the environment. COLUMNS sets the width where there is no terminal.
func StyleOf(w io.Writer) Style {
	if !IsTerminal(w) {
		width, err := strconv.Atoi(os.Getenv("COLUMNS"))
		if err != nil || width < 20 {
			width = 0
		}
		return Style{Width: width}
	}
	style := Style{Color: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb", Width: 80}
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width >= 20 {
			style.Width = width
		}
	}
	return style
}
