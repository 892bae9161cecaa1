// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Names of the counters that prove tunneling, of kube-apiserver (apiserver_egress_dialer_*) and of konnectivity-server.
const (
	metricDialStart      = "apiserver_egress_dialer_dial_start_total"
	metricDialFailure    = "apiserver_egress_dialer_dial_failure_count"
	metricProcessStart   = "process_start_time_seconds"
	metricServerDials    = "konnectivity_network_proxy_server_dial_duration_seconds"
	metricServerBackends = "konnectivity_network_proxy_server_ready_backend_connections"
	metricServerPackets  = "konnectivity_network_proxy_server_stream_packets_total"
)

// countedFamilies are the metrics that anything here looks at.
var countedFamilies = map[string]bool{
	metricDialStart: true, metricDialFailure: true, metricProcessStart: true,
	metricServerDials: true, metricServerBackends: true, metricServerPackets: true,
}

// counted drops the lines of all other metrics. An API server has tens of thousands of them, and every proof reads them
// several times. Lines that are no metrics stay, for the parser to refuse.
func counted(text []byte) []byte {
	out := make([]byte, 0, 4<<10)
	for line := range bytes.Lines(text) {
		name, comment := line, false
		if rest, ok := bytes.CutPrefix(line, []byte("# ")); ok {
			name, comment = rest, true
			if len(rest) > 5 && rest[4] == ' ' { // HELP and TYPE
				name = rest[5:]
			}
		}
		end := bytes.IndexFunc(name, func(r rune) bool { return !metricNameRune(r) })
		if end < 0 {
			end = len(name)
		}
		if (end == 0 && !comment) || wanted(name[:end]) {
			out = append(out, line...)
		}
	}
	return out
}

func metricNameRune(r rune) bool {
	return r == '_' || r == ':' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

// wanted knows the families by their own names and by those of a histogram's series.
func wanted(name []byte) bool {
	if countedFamilies[string(name)] {
		return true
	}
	for _, suffix := range []string{"_count", "_sum", "_bucket"} {
		if family, ok := bytes.CutSuffix(name, []byte(suffix)); ok && countedFamilies[string(family)] {
			return true
		}
	}
	return false
}

// families are the metrics of one or more scrapes, summed over scrapes.
type families map[string][]*dto.Metric

// parseMetrics reads the counted families from Prometheus text. Several scrapes may follow one another: an aggregate of
// several servers repeats every family, which the text format forbids within one scrape, so each repetition starts a
// new one.
func parseMetrics(text []byte) (families, error) {
	out := families{}
	for _, scrape := range splitScrapes(counted(text)) {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		parsed, err := parser.TextToMetricFamilies(bytes.NewReader(scrape))
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("parse metrics: %w", err)
		}
		for name, family := range parsed {
			out[name] = append(out[name], family.Metric...)
		}
	}
	return out, nil
}

// parseProtobuf reads the counted families from one scrape of delimited protobuf.
func parseProtobuf(data []byte) (families, error) {
	out := families{}
	decoder := expfmt.NewDecoder(bytes.NewReader(data), expfmt.NewFormat(expfmt.TypeProtoDelim))
	for {
		var family dto.MetricFamily
		err := decoder.Decode(&family)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("parse metrics: %w", err)
		}
		if name := family.GetName(); countedFamilies[name] {
			out[name] = append(out[name], family.Metric...)
		}
	}
}

// SplitScrapes cuts the text of several scrapes that follow one another, such as that of Env.ServerMetrics, into single ones.
func SplitScrapes(text []byte) [][]byte { return splitScrapes(text) }

// splitScrapes cuts text wherever a `# TYPE` line repeats a name that the current piece already has.
func splitScrapes(text []byte) [][]byte {
	var out [][]byte
	seen := map[string]bool{}
	start, pos, header := 0, 0, -1
	for _, line := range bytes.SplitAfter(text, []byte("\n")) {
		fields := bytes.Fields(line)
		comment := len(fields) >= 3 && bytes.Equal(fields[0], []byte("#"))
		switch {
		case comment && bytes.Equal(fields[1], []byte("HELP")):
			header = pos
		case comment && bytes.Equal(fields[1], []byte("TYPE")):
			cut := pos
			if header >= 0 {
				cut = header
			}
			if seen[string(fields[2])] {
				out, start, seen = append(out, text[start:cut]), cut, map[string]bool{}
			}
			seen[string(fields[2])] = true
			header = -1
		default:
			header = -1
		}
		pos += len(line)
	}
	return append(out, text[start:])
}

// sum adds up a counter, gauge or histogram's count over all series whose labels hold want; found is false when there is
// no such series. It panics on a name that is not in countedFamilies, whose series would all be missing.
func (f families) sum(name string, want map[string]string) (total float64, found bool) {
	if !countedFamilies[name] {
		panic("metric " + name + " is summed but not in countedFamilies")
	}
	for _, m := range f[name] {
		if !hasLabels(m, want) {
			continue
		}
		found = true
		switch {
		case m.Counter != nil:
			total += m.Counter.GetValue()
		case m.Histogram != nil:
			total += float64(m.Histogram.GetSampleCount())
		case m.Gauge != nil:
			total += m.Gauge.GetValue()
		case m.Untyped != nil:
			total += m.Untyped.GetValue()
		}
	}
	return math.Round(total*1000) / 1000, found
}

func hasLabels(m *dto.Metric, want map[string]string) bool {
	for name, value := range want {
		ok := false
		for _, pair := range m.Label {
			ok = ok || (pair.GetName() == name && pair.GetValue() == value)
		}
		if !ok {
			return false
		}
	}
	return true
}
