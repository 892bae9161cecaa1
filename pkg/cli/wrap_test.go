// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestHelpFits proves that the help of every command fits into 80 columns, apart from words and commands that cannot be broken.
func TestHelpFits(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	lines, command := 0, regexp.MustCompile(`^  (sudo )?(fairlead|kubectl) `)
	every(NewCommand(streams), nil, func(_ *cobra.Command, path []string) {
		var out bytes.Buffer
		to := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}
		if code := run(NewCommand(to), append(path, "--help"), to); code != 0 {
			t.Fatalf("%v --help: exit code %d", path, code)
		}
		for line := range strings.Lines(out.String()) {
			line = strings.TrimSuffix(line, "\n")
			lines++
			if n := len([]rune(line)); n > columns && len(strings.Fields(line)) > 1 && !command.MatchString(line) {
				t.Errorf("%v: %d columns: %s", path, n, line)
			}
		}
	})
	if lines < 500 {
		t.Errorf("only %d lines of help", lines)
	}
}

// TestWrap proves that wrapping changes no word, keeps indentation and short lines, and leaves commands that a shell reads the same.
func TestWrap(t *testing.T) {
	word := strings.Repeat("x", 30)
	if got, want := wrapText("short\n  "+word+" "+word+" "+word), "short\n  "+word+" "+word+"\n  "+word; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	paragraph := word + " " + word + " " + word + "\nshort\n\n"
	if got, want := wrapText(paragraph+paragraph), strings.Repeat(word+" "+word+"\n"+word+" short\n\n", 2); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	long := "  fairlead " + word + " " + word
	if got, want := wrapExample(long+"  # why it is so"), "  # why it is so\n"+long; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := wrapExample(long+" "+word), long+" \\\n      "+word; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if quoted := long + " '" + word + " " + word + "'"; wrapExample(quoted) != quoted {
		t.Errorf("got %q", wrapExample(quoted))
	}
}
