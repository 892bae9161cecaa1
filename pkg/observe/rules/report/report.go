// SPDX-License-Identifier: Apache-2.0

// Package report writes the results of checks: Write, in one of Formats.
package report

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// Formats are what Write knows.
var Formats = []string{"table", "short", "json", "junit"}

// Style is how a table looks.
type Style struct {
	// Color uses the terminal's colors; Width is its width, 0 for lines of any length.
	Color bool
	Width int
}

// Write writes a report.
func Write(out io.Writer, format string, r *rules.Report, style Style) error {
	switch format {
	case "", "table":
		return table(out, r, style, false)
	case "short":
		return table(out, r, style, true)
	case "json":
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(r)
	case "junit":
		return junit(out, r)
	}
	return fmt.Errorf("--output %q: choose one of %s", format, strings.Join(Formats, ", "))
}

type (
	junitSuite struct {
		XMLName   xml.Name    `xml:"testsuite"`
		Name      string      `xml:"name,attr"`
		Hostname  string      `xml:"hostname,attr,omitempty"`
		Timestamp string      `xml:"timestamp,attr"`
		Tests     int         `xml:"tests,attr"`
		Failures  int         `xml:"failures,attr"`
		Errors    int         `xml:"errors,attr"`
		Skipped   int         `xml:"skipped,attr"`
		Cases     []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string       `xml:"name,attr"`
		Class   string       `xml:"classname,attr"`
		Failure *junitReason `xml:"failure,omitempty"`
		Error   *junitReason `xml:"error,omitempty"`
		Skipped *junitReason `xml:"skipped,omitempty"`
		Out     string       `xml:"system-out,omitempty"`
	}
	junitReason struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// junit makes a failed check a failure, an unknown one an error, and a warning a passed test with output.
func junit(out io.Writer, r *rules.Report) error {
	suite := junitSuite{Name: "fairlead check", Hostname: r.Cluster, Timestamp: strings.TrimSuffix(r.Taken, "Z"), Tests: len(r.Checks),
		Failures: r.Counts[rules.Failed], Errors: r.Counts[rules.Unknown], Skipped: r.Counts[rules.Skipped] + r.Counts[rules.Suppressed]}
	for _, c := range r.Checks {
		text := clean(strings.Join(lines(c), "\n"))
		j := junitCase{Name: c.ID + ": " + c.Title, Class: "fairlead.check"}
		switch c.Status {
		case rules.Failed:
			j.Failure = &junitReason{Message: clean(first(c)), Text: text}
			if c.Reason != "" {
				j.Failure.Text += "\n" + clean(notAll+c.Reason)
			}
		case rules.Unknown:
			j.Error = &junitReason{Message: clean(c.Reason), Text: text}
		case rules.Skipped, rules.Suppressed:
			j.Skipped = &junitReason{Message: clean(c.Reason)}
		case rules.Warning:
			j.Out = text
		}
		suite.Cases = append(suite.Cases, j)
	}
	if _, err := io.WriteString(out, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(out)
	enc.Indent("", "  ")
	if err := enc.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(out, "\n")
	return err
}

func first(c rules.Result) string {
	for _, f := range c.Findings {
		if !f.Warning && !f.Suppressed {
			return finding(f)
		}
	}
	return c.Title
}

// finding is one line.
func finding(f rules.Finding) string {
	if f.Object == "" {
		return f.Message
	}
	return f.Object + ": " + f.Message
}

// lines are a result's findings, each with its fix.
func lines(c rules.Result) []string {
	var out []string
	for _, f := range c.Findings {
		if !f.Suppressed {
			out = append(out, finding(f), "fix: "+f.Fix)
		}
	}
	return out
}

// clean drops what neither XML nor a terminal should get: messages quote answers of servers.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r >= 0x20 && r != 0x7f && r != utf8.RuneError && (r < 0x80 || r > 0x9f) && r != 0xfffe && r != 0xffff {
			return r
		}
		return '?'
	}, s)
}
