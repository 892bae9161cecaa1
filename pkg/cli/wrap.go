// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// columns is the width that help fits into.
const columns = 80

// wrapHelp makes the help of a command and all below it fit into a terminal of 80 columns. The texts themselves stay as they are, because the
// reference in docs/cli has them, too.
func wrapHelp(root *cobra.Command) {
	cobra.AddTemplateFuncs(map[string]any{"wrapText": wrapText, "wrapExample": wrapExample})
	usage := strings.NewReplacer(".FlagUsages", ".FlagUsagesWrapped 80", "{{.Example}}", "{{.Example | wrapExample}}", "for more information about a command.", "for its flags.")
	root.SetUsageTemplate(usage.Replace(root.UsageTemplate()))
	root.SetHelpTemplate(strings.Replace(root.HelpTemplate(), "{{. | trimTrailingWhitespaces}}", "{{. | wrapText | trimTrailingWhitespaces}}", 1))
}

// wrapText breaks lines that are too long at blanks, and keeps their indentation. A paragraph with such a line is filled as a whole, so
// that no line of it has a word or two alone.
func wrapText(text string) string {
	var out, paragraph []string
	end := func() {
		if slices.ContainsFunc(paragraph, tooLong) {
			paragraph = wrapLine(strings.Join(paragraph, " "))
		}
		out, paragraph = append(out, paragraph...), nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" && !strings.HasPrefix(line, " ") {
			paragraph = append(paragraph, line)
			continue
		}
		end()
		out = append(out, wrapLine(line)...)
	}
	end()
	return strings.Join(out, "\n")
}

func tooLong(line string) bool { return len([]rune(line)) > columns }

func wrapLine(line string) []string {
	if !tooLong(line) {
		return []string{line}
	}
	indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
	var out []string
	at := indent
	for _, word := range strings.Fields(line) {
		switch {
		case at == indent:
			at += word
		case len([]rune(at))+1+len([]rune(word)) > columns:
			out = append(out, at)
			at = indent + word
		default:
			at += " " + word
		}
	}
	return append(out, at)
}

// wrapExample puts the comment of a command that is too long above it, and continues commands as a shell does.
func wrapExample(text string) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		if command, comment, ok := strings.Cut(line, " # "); ok && tooLong(line) && strings.TrimSpace(command) != "" {
			command = strings.TrimRight(command, " ")
			indent := command[:len(command)-len(strings.TrimLeft(command, " "))]
			out = append(out, wrapLine(indent+"# "+comment)...)
			line = command
		}
		if !tooLong(line) || strings.ContainsAny(line, `'"|`) { // quotes may span the place of a break
			out = append(out, line)
			continue
		}
		parts := wrapLine(line)
		for i, part := range parts {
			if i > 0 {
				part = "    " + part
			}
			if i < len(parts)-1 {
				part += ` \`
			}
			out = append(out, part)
		}
	}
	return strings.Join(out, "\n")
}
