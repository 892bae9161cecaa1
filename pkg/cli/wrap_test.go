// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestHelpFits proves that the help of every command fits into terminals of several widths, apart from words and commands that cannot be broken,
// and that it has the same words in each. The texts have line breaks for 80 columns: wider terminals do not change them.
func TestHelpFits(t *testing.T) {
	words, plain := map[string]string{}, map[string]string{}
	for _, width := range []int{80, 40, 200} {
		t.Setenv("COLUMNS", strconv.Itoa(width))
		testHelpFits(t, width, func(command, help string) {
			// A break of a command has a backslash, and each line of a comment its mark.
			fields := strings.Join(strings.FieldsFunc(help, func(r rune) bool { return unicode.IsSpace(r) || r == '\\' || r == '#' }), " ")
			if width == 80 {
				words[command], plain[command] = sorted(fields), help
			}
			if sorted(fields) != words[command] {
				t.Errorf("%s: other words with %d columns than with 80:\n%s", command, width, help)
			}
			if width > 80 && help != plain[command] {
				t.Errorf("%s: another help with %d columns than with 80:\n%s", command, width, help)
			}
		})
	}
}

// sorted ignores the order: a comment may stand before its command or behind it.
func sorted(text string) string {
	words := strings.Fields(text)
	slices.Sort(words)
	return strings.Join(words, " ")
}

func testHelpFits(t *testing.T, width int, look func(command, help string)) {
	t.Helper()
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	lines, command := 0, regexp.MustCompile(`^  +(sudo )?(fairlead|kubectl|curl|export|eval|source) `)
	every(NewCommand(streams), nil, func(_ *cobra.Command, path []string) {
		var out bytes.Buffer
		to := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}
		if code := run(NewCommand(to), append(path, "--help"), to); code != 0 {
			t.Fatalf("%v --help: exit code %d", path, code)
		}
		for line := range strings.Lines(out.String()) {
			line = strings.TrimSuffix(line, "\n")
			lines++
			if n := len([]rune(line)); n > min(width, 80) && len(strings.Fields(strings.TrimLeft(line, " #"))) > 1 && !command.MatchString(line) {
				t.Errorf("%v: %d columns of %d: %s", path, n, width, line)
			}
		}
		look(strings.Join(path, " "), out.String())
	})
	if lines < 500 {
		t.Errorf("only %d lines of help", lines)
	}
}

// TestWrap proves that wrapping changes no word, keeps indentation and short lines, and leaves commands that a shell reads the same.
func TestWrap(t *testing.T) {
	word := strings.Repeat("x", 30)
	if got, want := wrapText(80, "short\n  "+word+" "+word+" "+word), "short\n  "+word+" "+word+"\n  "+word; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	paragraph := word + " " + word + " " + word + "\nshort\n\n"
	if got, want := wrapText(80, paragraph+paragraph), strings.Repeat(word+" "+word+"\n"+word+" short\n\n", 2); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	long := "  fairlead " + word + " " + word
	if got, want := wrapExample(80, long+"  # why it is so"), "  # why it is so\n"+long; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := wrapExample(80, long+" "+word), long+" \\\n      "+word; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if quoted := long + " '" + word + " " + word + "'"; wrapExample(80, quoted) != quoted {
		t.Errorf("got %q", wrapExample(80, quoted))
	}
}
