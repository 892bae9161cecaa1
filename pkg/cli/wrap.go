// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
)

// wrapHelp makes the help of a command and all below it fit into a terminal of so many columns. The texts themselves stay as they are, because
// the reference in docs/cli has them, too.
func wrapHelp(root *cobra.Command, columns int) {
	cobra.AddTemplateFuncs(map[string]any{"wrapText": wrapText, "wrapExample": wrapExample, "wrapShort": wrapShort, "wrapFlags": wrapFlags})
	width := strconv.Itoa(columns)
	usage := strings.NewReplacer(".FlagUsages", ".FlagUsagesWrapped "+width+" | wrapFlags "+width, "{{.Example}}", "{{.Example | wrapExample "+width+"}}",
		"{{.Short}}", "{{.Short | wrapShort "+width+" .NamePadding}}",
		`Use "{{.CommandPath}} [command] --help" for more information about a command.`,
		`{{printf "Use \"%s [command] --help\" for its flags." .CommandPath | wrapText `+width+`}}`)
	root.SetUsageTemplate(usage.Replace(root.UsageTemplate()))
	root.SetHelpTemplate(strings.Replace(root.HelpTemplate(), "{{. | trimTrailingWhitespaces}}", "{{. | wrapText "+width+" | trimTrailingWhitespaces}}", 1))
}

// helpColumns is the width of help. Its texts have line breaks for 80 columns, which a wider terminal does not change.
func helpColumns(out io.Writer) int {
	if width := ui.StyleOf(out).Width; width > 0 {
		return min(width, ui.DefaultWidth)
	}
	return ui.DefaultWidth
}

// wrapText breaks lines that are too long at blanks, and keeps their indentation. A paragraph with such a line is filled as a whole, so
// that no line of it has a word or two alone.
func wrapText(columns int, text string) string {
	tooLong := func(line string) bool { return tooLong(columns, line) }
	var out, paragraph []string
	end := func() {
		if slices.ContainsFunc(paragraph, tooLong) {
			paragraph = wrapLine(columns, strings.Join(paragraph, " "))
		}
		out, paragraph = append(out, paragraph...), nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" && !strings.HasPrefix(line, " ") {
			paragraph = append(paragraph, line)
			continue
		}
		end()
		out = append(out, wrapLine(columns, line)...)
	}
	end()
	return strings.Join(out, "\n")
}

func tooLong(columns int, line string) bool { return len([]rune(line)) > columns }

// wrapFlags breaks what pflag leaves too long in a narrow terminal, and removes the blanks that it leaves at the end.
func wrapFlags(columns int, text string) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		out = append(out, wrapLine(columns, strings.TrimRight(line, " "))...)
	}
	return strings.Join(out, "\n")
}

// wrapShort breaks the description of a command that stands behind its name.
func wrapShort(columns, name int, text string) string {
	indent := len("  ") + name + len(" ")
	return strings.Join(wrapLine(columns-indent, text), "\n"+strings.Repeat(" ", indent))
}

func wrapLine(columns int, line string) []string {
	if !tooLong(columns, line) {
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

// wrapComment repeats the mark of a comment in each line.
func wrapComment(columns int, indent, comment string) []string {
	mark := indent + "# "
	out := wrapLine(columns-len(mark), strings.TrimSpace(comment))
	for i := range out {
		out[i] = mark + out[i]
	}
	return out
}

// wrapExample puts the comment of a command that is too long above it, and continues commands as a shell does.
func wrapExample(columns int, text string) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		if comment, ok := strings.CutPrefix(strings.TrimLeft(line, " "), "# "); ok {
			out = append(out, wrapComment(columns, line[:len(line)-len(comment)-len("# ")], comment)...)
			continue
		}
		if command, comment, ok := strings.Cut(line, " # "); ok && tooLong(columns, line) && strings.TrimSpace(command) != "" {
			command = strings.TrimRight(command, " ")
			indent := command[:len(command)-len(strings.TrimLeft(command, " "))]
			out = append(out, wrapComment(columns, indent, comment)...)
			line = command
		}
		if !tooLong(columns, line) || strings.ContainsAny(line, `'"|`) { // quotes may span the place of a break
			out = append(out, line)
			continue
		}
		parts := wrapLine(columns-len("    ")-len(` \`), line)
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
