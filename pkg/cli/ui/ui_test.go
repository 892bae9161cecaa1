// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// Without a terminal, progress prints one line when a step begins and one when it
// ends, without colors or control characters.
func TestPlainProgress(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out, false)
	p.Begin("Making tea")
	p.Detail("waiting for water")
	p.End("80 °C", nil)
	p.Begin("Pouring")
	p.End("not shown", errors.New("no cup"))
	want := " • Making tea ...\n ✓ Making tea (80 °C)\n • Pouring ...\n ✗ Pouring\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestQuietProgressShowsFailuresOnly(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out, true)
	p.Begin("Making tea")
	p.End("", nil)
	p.Begin("Pouring")
	p.End("", errors.New("no cup"))
	if out.String() != " ✗ Pouring\n" {
		t.Errorf("got %q", out.String())
	}
}

// On a terminal the line of the running step is redrawn and the finished one stays.
func TestLiveProgress(t *testing.T) {
	var out bytes.Buffer
	p := &Progress{out: &out, live: true, color: true}
	p.Begin("Making tea")
	p.Detail("waiting for water")
	p.End("80 °C", nil)
	got := out.String()
	if !strings.HasPrefix(got, "\r\x1b[K ⠋ Making tea") || !strings.HasSuffix(got, "\r\x1b[K \x1b[32m✓\x1b[0m Making tea\x1b[2m (80 °C)\x1b[0m\n") {
		t.Errorf("got %q", got)
	}
}

func TestLongLinesAreCut(t *testing.T) {
	p := &Progress{out: io.Discard}
	if got := p.fit(strings.Repeat("é", 200)); len([]rune(got)) != 79 {
		t.Errorf("%d characters on a line of 80", len([]rune(got)))
	}
}

func TestErrors(t *testing.T) {
	var out bytes.Buffer
	PrintError(&out, errors.New("first\nsecond\x1b[2J \"fairlead down\""))
	want := "fairlead: first\n  second?[2J \"" + Self() + " down\"\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestWrite(t *testing.T) {
	v := map[string]int{"a": 1}
	human := func(w io.Writer) error { _, err := io.WriteString(w, "one a\n"); return err }
	for format, want := range map[string]string{"": "one a\n", "json": "{\n  \"a\": 1\n}\n", "yaml": "a: 1\n"} {
		var out bytes.Buffer
		if err := Write(&out, format, v, human); err != nil || out.String() != want {
			t.Errorf("%q: %q, %v; want %q", format, out.String(), err, want)
		}
	}
	if err := Write(io.Discard, "xml", v, human); err == nil || !strings.Contains(err.Error(), "xml") {
		t.Errorf("xml: %v", err)
	}
}
