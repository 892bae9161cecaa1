// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"strings"
	"time"
)

// Severity says how fast someone has to act.
type Severity string

const (
	// Critical alerts mean that calls fail now.
	Critical Severity = "critical"
	// Warning alerts mean that calls will fail, or that one part of several fails.
	Warning Severity = "warning"
)

// RunbookBase is where the pages of docs/runbooks are.
const RunbookBase = "https://github.com/fairlead-dev/fairlead/blob/main/docs/runbooks/"

// Alert is an alerting rule with its proof.
type Alert struct {
	Name string
	// Expr is PromQL. It must not depend on names of jobs, which differ between installations.
	Expr     string
	For      time.Duration
	Severity Severity
	// Summary is one sentence. It may use labels of the expression's result: {{ $labels.instance }}.
	Summary string
	// OwnMetrics says that all series are Fairlead's own, so that the alert never fires for upstream's programs.
	OwnMetrics bool
	// Fault has series in which the alert fires, and Health others in which it does not.
	Fault, Health []Series
	// Fires are the labels of the alerts that Fault causes, apart from the severity.
	Fires []map[string]string
}

// Series is a series of a test, in the notation of promtool: Values "0+1x10" are 0, 1, 2 … 10, one each minute.
type Series struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

// Runbook is the URL of the page that says what to do.
func (a Alert) Runbook() string { return RunbookBase + a.Name + ".md" }

// summaryFor fills labels in, for the expectations of tests.
func (a Alert) summaryFor(labels map[string]string) string {
	text := a.Summary
	for name, value := range labels {
		text = strings.ReplaceAll(text, "{{ $labels."+name+" }}", value)
	}
	return text
}

// Alerts lists all alerts: first those of the tunnel, then those of kube-apiserver and the schedulers.
func Alerts() []Alert {
	var all []Alert
	for _, group := range Groups() {
		all = append(all, group.Alerts...)
	}
	return all
}

// Group is a group of alerts that Prometheus evaluates together.
type Group struct {
	Name   string
	Alerts []Alert
}

// Groups returns the alerts by component.
func Groups() []Group {
	return []Group{
		{"konnectivity-agents", agentAlerts()},
		{"konnectivity-calls", callAlerts()},
		{"konnectivity-limits", limitAlerts()},
		{"kube-apiserver-egress", apiserverAlerts()},
		{"second-scheduler", schedulerAlerts()},
		{"ways-in", wayInAlerts()},
	}
}
