// SPDX-License-Identifier: Apache-2.0

package doccommands

import (
	"regexp"
	"strings"
)

// Command is one that a reader enters, with all of its lines.
type Command struct {
	// Line is the number of its first line in the page.
	Line int
	Text string
}

var (
	fence    = regexp.MustCompile("^( *)```([a-z]*)")
	document = regexp.MustCompile(`<<-?'?"?([A-Za-z_]+)`)
)

// Commands returns the commands of blocks of type sh, and those behind a prompt in blocks of type console, in order. A backslash or a pipe at the
// end of a line joins it with the next one, and a here-document belongs to its command. A block that begins with "#!" is the text of a program.
func Commands(page string) []Command {
	var all []Command
	for _, b := range blocks(page) {
		if len(b.lines) > 0 && strings.HasPrefix(b.lines[0], "#!") {
			continue
		}
		all = append(all, b.commands()...)
	}
	return all
}

type block struct {
	first   int
	console bool
	lines   []string
}

func blocks(page string) []block {
	var all []block
	var open *block
	inside, indent, number := false, "", 0
	for line := range strings.Lines(page) {
		number++
		line = strings.TrimRight(line, "\r\n")
		m := fence.FindStringSubmatch(line)
		switch {
		case m != nil && inside:
			if open != nil {
				all = append(all, *open)
			}
			inside, open = false, nil
		case m != nil:
			inside, indent = true, m[1]
			if m[2] == "sh" || m[2] == "bash" || m[2] == "console" {
				open = &block{first: number + 1, console: m[2] == "console"}
			}
		case open != nil:
			open.lines = append(open.lines, strings.TrimPrefix(line, indent))
		}
	}
	return all
}

func (b block) commands() []Command {
	var all []Command
	var one []string
	end := "" // of the here-document
	for i, line := range b.lines {
		if len(one) == 0 {
			ok := true
			if b.console {
				line, ok = strings.CutPrefix(line, "$ ")
			}
			if text := strings.TrimSpace(line); !ok || text == "" || strings.HasPrefix(text, "#") {
				continue
			}
			all = append(all, Command{Line: b.first + i})
		}
		one = append(one, line)
		if end != "" {
			if line != end {
				continue
			}
			end = ""
		} else if m := document.FindStringSubmatch(line); m != nil {
			end = m[1]
			continue
		} else if trimmed := strings.TrimSpace(line); strings.HasSuffix(trimmed, `\`) || strings.HasSuffix(trimmed, "|") {
			continue
		}
		all[len(all)-1].Text = strings.Join(one, "\n")
		one = nil
	}
	if len(one) > 0 {
		all[len(all)-1].Text = strings.Join(one, "\n")
	}
	return all
}
