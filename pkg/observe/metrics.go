// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Names of the metrics that checks and status read. The tunnel's are upstream's, which Fairlead's programs have as well.
const (
	MetricBackends     = "konnectivity_network_proxy_server_ready_backend_connections"
	MetricByStrategy   = "konnectivity_network_proxy_server_ready_backends"
	MetricDialSeconds  = "konnectivity_network_proxy_server_dial_duration_seconds"
	MetricDialFailures = "konnectivity_network_proxy_server_dial_failure_count"
	MetricEstablished  = "konnectivity_network_proxy_server_established_connections"
	MetricTurnedAway   = "fairlead_tunnel_server_turned_away_total"
	MetricRefused      = "fairlead_tunnel_server_agents_refused_total"
	MetricEvictions    = "fairlead_tunnel_server_evictions_total"
	MetricEgressStart  = "apiserver_egress_dialer_dial_start_total"
	MetricEgressFailed = "apiserver_egress_dialer_dial_failure_count"
	MetricUnavailable  = "aggregator_unavailable_apiservice"
	MetricLeader       = "leader_election_master_status"
	MetricQueue        = "scheduler_pending_pods"
	MetricStart        = "process_start_time_seconds"
)

// Metrics are the metric families of one scrape, by name.
type Metrics map[string]*dto.MetricFamily

// parseMetrics reads the families whose names have one of the prefixes. An API server has tens of thousands of series, so the others are
// dropped before they are parsed.
func parseMetrics(text []byte, prefixes ...string) (Metrics, error) {
	kept := make([]byte, 0, 8<<10)
	for line := range bytes.Lines(text) {
		name := line
		for _, comment := range []string{"# HELP ", "# TYPE "} {
			name = bytes.TrimPrefix(name, []byte(comment))
		}
		for _, p := range prefixes {
			if bytes.HasPrefix(name, []byte(p)) {
				kept = append(kept, line...)
				break
			}
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(kept))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("parse metrics: %w", err)
	}
	return families, nil
}

// Sum adds up a family's series with these labels; a histogram's is its count. It is false if there are none.
func (m Metrics) Sum(name string, labels map[string]string) (float64, bool) {
	total, found := 0.0, false
	for _, series := range m[name].GetMetric() {
		if !matches(series, labels) {
			continue
		}
		found = true
		total += series.GetCounter().GetValue() + series.GetGauge().GetValue() + series.GetUntyped().GetValue() + float64(series.GetHistogram().GetSampleCount())
	}
	return total, found
}

func matches(m *dto.Metric, labels map[string]string) bool {
	for name, value := range labels {
		ok := false
		for _, pair := range m.GetLabel() {
			ok = ok || pair.GetName() == name && pair.GetValue() == value
		}
		if !ok {
			return false
		}
	}
	return true
}

// Values returns the values of one label, and the sum of each value's series.
func (m Metrics) Values(name, label string) map[string]float64 {
	out := map[string]float64{}
	for _, series := range m[name].GetMetric() {
		for _, pair := range series.GetLabel() {
			if pair.GetName() == label {
				out[pair.GetValue()] += series.GetCounter().GetValue() + series.GetGauge().GetValue() + series.GetUntyped().GetValue()
			}
		}
	}
	return out
}

// ConnectedAgents is how many agents are connected to a server, by its metrics; false if they do not say. Strategy default counts each agent once.
// Other strategies count what agents claim, so that without it the largest number is the best guess. The old metric has the number of the strategy
// that changed last.
func ConnectedAgents(m Metrics) (int, bool) {
	byStrategy := m.Values(MetricByStrategy, "proxy_strategy")
	if n, ok := byStrategy["default"]; ok {
		return int(n), true
	}
	if len(byStrategy) > 0 {
		return int(slices.Max(slices.Collect(maps.Values(byStrategy)))), true
	}
	n, ok := m.Sum(MetricBackends, nil)
	return int(n), ok
}

// Quantile estimates a quantile of a histogram over all its series, as PromQL's histogram_quantile does: linear within a bucket. It is NaN
// without observations.
func (m Metrics) Quantile(name string, q float64) float64 {
	bounds, counts := []float64{}, map[float64]float64{}
	for _, series := range m[name].GetMetric() {
		for _, b := range series.GetHistogram().GetBucket() {
			if _, ok := counts[b.GetUpperBound()]; !ok {
				bounds = append(bounds, b.GetUpperBound())
			}
			counts[b.GetUpperBound()] += float64(b.GetCumulativeCount())
		}
	}
	total, _ := m.Sum(name, nil)
	if total == 0 || len(bounds) == 0 {
		return math.NaN()
	}
	lower, below := 0.0, 0.0
	for _, bound := range sortedFloats(bounds) {
		if counts[bound] >= q*total {
			if math.IsInf(bound, 1) || counts[bound] == below {
				return lower
			}
			return lower + (bound-lower)*(q*total-below)/(counts[bound]-below)
		}
		lower, below = bound, counts[bound]
	}
	return lower
}

// tunnelMetrics and the others are the families that are kept.
var (
	tunnelMetrics    = []string{"konnectivity_network_proxy_", "fairlead_tunnel_", "process_"}
	apiServerMetrics = []string{"apiserver_egress_dialer_", "aggregator_unavailable_", "apiserver_conversion_webhook_", MetricStart}
	schedulerMetrics = []string{"leader_election_", "scheduler_pending_pods", "scheduler_schedule_attempts_total", MetricStart}
)

// Text is the family in the text format, for people and for archives.
func (m Metrics) Text(w io.Writer) error {
	for _, name := range sortedKeys(m) {
		if _, err := expfmt.MetricFamilyToText(w, m[name]); err != nil {
			return err
		}
	}
	return nil
}

func hasAny(text string, parts ...string) bool {
	for _, p := range parts {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}
