// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// All checks of fairlead verify pass, including the disruptive ones, and their
// JUnit report says so.
// It observes SCHED-01, SCHED-22 and SCHED-41 of docs/requirements.md.
// It also observes KON-11 of docs/requirements.md.
func TestVerify(t *testing.T) {
	testutil.Full(t, "up runs the checks that are not disruptive")
	run(t, "fairlead verify", 6*time.Minute, step{"all checks pass", func(ctx context.Context, t *testing.T) {
		r, err := suite.Try(ctx, "verify", "--context", suite.Context(), "--disruptive", "-o", "junit")
		if err != nil {
			t.Fatal(err)
		}
		var suites struct {
			Suites []struct {
				Tests    int `xml:"tests,attr"`
				Failures int `xml:"failures,attr"`
				Skipped  int `xml:"skipped,attr"`
				Cases    []struct {
					Name      string  `xml:"name,attr"`
					Time      float64 `xml:"time,attr"`
					SystemOut string  `xml:"system-out"`
				} `xml:"testcase"`
			} `xml:"testsuite"`
		}
		if err := xml.Unmarshal([]byte(r.Stdout), &suites); err != nil || len(suites.Suites) != 1 {
			t.Fatalf("not a JUnit report (%v):\n%s%s", err, r.Stdout, r.Stderr)
		}
		report := suites.Suites[0]
		if r.Code != 0 || report.Failures != 0 || report.Skipped != 0 || report.Tests < 12 {
			t.Errorf("exit code %d, %d checks, %d failed, %d skipped\n%s%s", r.Code, report.Tests, report.Failures, report.Skipped, r.Stdout, r.Stderr)
		}
		gateway := false
		for _, c := range report.Cases {
			gateway = gateway || strings.Contains(c.Name, "gateway-access")
			t.Logf("%6.1f s  %s  %s", c.Time, c.Name, strings.ReplaceAll(c.SystemOut, "\n", "; "))
		}
		if !gateway {
			t.Error("the gateway was not checked")
		}
	}})
}
