// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// testdata/server.metrics is what upstream's konnectivity-server v0.36.0 answered after 74 dials.
func TestParseMetrics(t *testing.T) {
	server, err := os.ReadFile("testdata/server.metrics")
	if err != nil {
		t.Fatal(err)
	}
	toAgent := map[string]string{"segment": "to_agent", "packet_type": "DATA"}
	tests := map[string]struct {
		text   string
		metric string
		labels map[string]string
		want   float64
		found  bool
	}{
		"histogram count":                     {string(server), metricServerDials, nil, 74, true},
		"labels":                              {string(server), metricServerPackets, toAgent, 1526, true},
		"other label":                         {string(server), metricServerPackets, map[string]string{"segment": "nowhere"}, 0, false},
		"absent":                              {string(server), metricDialStart, nil, 0, false},
		"two servers":                         {string(server) + "\n" + string(server), metricServerDials, nil, 148, true},
		"sum over labels":                     {"# TYPE " + metricDialStart + " counter\n" + metricDialStart + `{protocol="grpc",transport="uds"} 3` + "\n" + metricDialStart + `{protocol="http_connect",transport="tcp"} 4` + "\n", metricDialStart, nil, 7, true},
		"no type":                             {"process_start_time_seconds 12.5\n", metricProcessStart, nil, 12.5, true},
		"empty":                               {"", metricServerDials, nil, 0, false},
		"beside a longer name":                {"# TYPE process_start_time_seconds_ago gauge\nprocess_start_time_seconds_ago 3\n# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 5\n", metricProcessStart, nil, 5, true},
		"a name that ends like a histogram's": {"# TYPE " + metricDialFailure + " counter\n" + metricDialFailure + "{protocol=\"grpc\"} 6\n", metricDialFailure, nil, 6, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			parsed, err := parseMetrics([]byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if got, found := parsed.sum(tc.metric, tc.labels); got != tc.want || found != tc.found {
				t.Errorf("got %g %t, want %g %t", got, found, tc.want, tc.found)
			}
		})
	}
	if _, err := parseMetrics([]byte("<html>not metrics</html>")); err == nil {
		t.Error("a page that is not metrics must be refused")
	}
}

// Other metrics change nothing, and are not parsed: the API server has tens of thousands.
func TestOtherMetricsAreDropped(t *testing.T) {
	server, err := os.ReadFile("testdata/server.metrics")
	if err != nil {
		t.Fatal(err)
	}
	few := counted(server)
	if len(few)*2 > len(server) || len(few) == 0 {
		t.Errorf("%d of %d bytes are left", len(few), len(server))
	}
	parsed, err := parseMetrics(server)
	if err != nil {
		t.Fatal(err)
	}
	for name := range parsed {
		if !countedFamilies[name] {
			t.Errorf("%s is parsed", name)
		}
	}
}

// writeMetrics answers as Prometheus' own handler does: with text, or with protobuf where that is asked for.
func writeMetrics(w http.ResponseWriter, r *http.Request, text string, textOnly bool) {
	format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultAcceptedFormats()...)
	if textOnly {
		format = expfmt.NewFormat(expfmt.TypeTextPlain)
	}
	w.Header().Set("Content-Type", string(format))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(text))
	encoder := expfmt.NewEncoder(w, format)
	for _, family := range parsed {
		err = errors.Join(err, encoder.Encode(family))
	}
	if err != nil {
		panic(err)
	}
}

// An API server's counters are the same in the format that we ask for and in the one that every server has.
func TestFormatsOfAPIServer(t *testing.T) {
	api := newStubAPI(t)
	api.dials, api.failures = 7, 2
	s := newScope(api.env(t), "x")
	want := apiSample{instance: api.instance, dials: 7, failures: 2, configured: true}
	for _, textOnly := range []bool{false, true} {
		api.textOnly = textOnly
		if got, err := s.apiSample(t.Context()); err != nil || got != want {
			t.Errorf("text only %t: got %+v, %v; want %+v", textOnly, got, err, want)
		}
	}
	if _, err := parseProtobuf([]byte{200, 1, 2}); err == nil {
		t.Error("a message that is cut off must be refused")
	}
}

// A metric that is not in countedFamilies would be missing without an error.
func TestSumOfUncounted(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("summing it must panic")
		}
	}()
	families{}.sum("apiserver_request_total", nil)
}

func FuzzParseMetrics(f *testing.F) {
	f.Add([]byte("# HELP a b\n# TYPE a counter\na 1\n# HELP a b\n# TYPE a counter\na 2\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		total := 0
		for _, piece := range splitScrapes(text) {
			total += len(piece)
		}
		if total != len(text) {
			t.Errorf("pieces of %d bytes hold %d", len(text), total)
		}
		_, _ = parseMetrics(text)
	})
}
