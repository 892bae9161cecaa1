// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name      string      `xml:"name,attr"`
	Hostname  string      `xml:"hostname,attr,omitempty"`
	Timestamp string      `xml:"timestamp,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Errors    int         `xml:"errors,attr"`
	Skipped   int         `xml:"skipped,attr"`
	Time      string      `xml:"time,attr"`
	Cases     []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name      string       `xml:"name,attr"`
	ClassName string       `xml:"classname,attr"`
	Time      string       `xml:"time,attr"`
	Failure   *junitReason `xml:"failure,omitempty"`
	Skipped   *junitReason `xml:"skipped,omitempty"`
	SystemOut string       `xml:"system-out,omitempty"`
}

type junitReason struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

func encodeJUnit(out io.Writer, r *check.Report) error {
	suite := junitSuite{
		Name: "fairlead verify", Hostname: r.Cluster, Timestamp: strings.TrimSuffix(r.Started, "Z"),
		Tests: len(r.Checks), Failures: r.Failed, Skipped: r.Skipped, Time: fmt.Sprintf("%.3f", r.Seconds),
	}
	for _, res := range r.Checks {
		suite.Cases = append(suite.Cases, junitCaseOf(res))
	}
	if _, err := io.WriteString(out, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(out)
	enc.Indent("", "  ")
	if err := enc.Encode(junitSuites{Suites: []junitSuite{suite}}); err != nil {
		return err
	}
	_, err := io.WriteString(out, "\n")
	return err
}

func junitCaseOf(res check.Result) junitCase {
	c := junitCase{Name: res.ID + ": " + res.Title, ClassName: "fairlead.verify", Time: fmt.Sprintf("%.3f", res.Seconds)}
	switch res.Status {
	case check.Failed:
		c.Failure = &junitReason{Message: xmlText(res.Error), Type: "CheckFailed", Text: xmlText(res.Hint)}
	case check.Skipped:
		c.Skipped = &junitReason{Message: xmlText(res.Error)}
	}
	var lines []string
	for _, key := range sortedKeys(res.Details) {
		lines = append(lines, key+": "+res.Details[key])
	}
	c.SystemOut = xmlText(strings.Join(lines, "\n"))
	return c
}

// xmlText drops what XML 1.0 cannot hold: errors may quote binary answers.
func xmlText(s string) string {
	return strings.Map(func(r rune) rune {
		ok := r == '\t' || r == '\n' || r == '\r' || (r >= 0x20 && r <= 0xD7FF) || (r >= 0xE000 && r <= 0xFFFC) || (r >= 0x10000 && r <= utf8.MaxRune)
		if ok {
			return r
		}
		return '?'
	}, s)
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
