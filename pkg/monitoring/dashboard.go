// SPDX-License-Identifier: Apache-2.0

package monitoring

// Dashboard is a dashboard of Grafana, without its layout. The command deploy/tools/monitoring renders it.
type Dashboard struct {
	// UID is the dashboard's fixed ID and the name of its file.
	UID, Title string
	Rows       []Row
}

// Row is a row of panels.
type Row struct {
	Title  string
	Panels []Panel
}

// Panel is a graph over time.
type Panel struct {
	Title, Description string
	// Unit is a unit of Grafana: "short", "s", "bytes", "percentunit", "ops".
	Unit    string
	Queries []Query
}

// Query is PromQL and how to name its series.
type Query struct{ Expr, Legend string }

// RateInterval is the variable that Grafana replaces by a range that suits the scrape interval.
const RateInterval = "$__rate_interval"

// Expressions returns every expression of the alerts and of the dashboards, with this range in place of Grafana's
// variable.
func Expressions(rateInterval string) []string {
	var out []string
	for _, a := range Alerts() {
		out = append(out, a.Expr)
	}
	for _, d := range Dashboards() {
		for _, r := range d.Rows {
			for _, p := range r.Panels {
				for _, q := range p.Queries {
					out = append(out, replaceRate(q.Expr, rateInterval))
				}
			}
		}
	}
	return out
}

// Dashboards returns the dashboards.
func Dashboards() []Dashboard {
	return []Dashboard{tunnelDashboard(), schedulerDashboard(), waysInDashboard()}
}
