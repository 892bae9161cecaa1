// SPDX-License-Identifier: Apache-2.0

package monitoring_test

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/monitoring"
)

var anyIncrease = regexp.MustCompile(`increase\((fairlead_tunnel_(?:server|agent)_\w+)(?:\{(\w+="\w+")\})?\[\w+\]\)+ > 0`)

// TestSeriesBeginAtZero: a counter whose series appears with its first event has not increased for Prometheus, so an alert on any
// increase would miss that event.
func TestSeriesBeginAtZero(t *testing.T) {
	var text bytes.Buffer
	server.NewMetrics().Registry.Write(&text)
	agent.NewMetrics().Registry.Write(&text)
	looked := 0
	for _, a := range monitoring.Alerts() {
		for _, m := range anyIncrease.FindAllStringSubmatch(a.Expr, -1) {
			looked++
			series := regexp.MustCompile(`(?m)^` + m[1] + `(?:\{[^}]*` + m[2] + `[^}]*\})? 0$`)
			if !series.MatchString(text.String()) {
				t.Errorf("alert %s: no series of %s{%s} at 0 before anything is counted", a.Name, m[1], m[2])
			}
		}
	}
	if looked < 7 {
		t.Errorf("%d counters of alerts were found: does the expression of this test still match?", looked)
	}
}
