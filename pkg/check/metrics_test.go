package check

import (
	"os"
	"testing"
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
		"histogram count (KON-84)":            {string(server), metricServerDials, nil, 74, true},
		"labels":                              {string(server), metricServerPackets, toAgent, 1526, true},
		"other label":                         {string(server), metricServerPackets, map[string]string{"segment": "nowhere"}, 0, false},
		"absent":                              {string(server), metricDialStart, nil, 0, false},
		"two servers":                         {string(server) + "\n" + string(server), metricServerDials, nil, 148, true},
		"sum over labels (KON-11)":            {"# TYPE " + metricDialStart + " counter\n" + metricDialStart + `{protocol="grpc",transport="uds"} 3` + "\n" + metricDialStart + `{protocol="http_connect",transport="tcp"} 4` + "\n", metricDialStart, nil, 7, true},
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
