// SPDX-License-Identifier: Apache-2.0

package panels

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/monitoring"
)

// TestDashboard: a drawing is well-formed, has every title, and says where data are missing.
func TestDashboard(t *testing.T) {
	d := monitoring.Dashboard{Title: "A & B", Rows: []monitoring.Row{{Title: "row", Panels: []monitoring.Panel{
		{Title: "full", Unit: "bytes"}, {Title: "empty", Unit: "s"}, {Title: "zero", Unit: "ops"}, {Title: "many", Unit: "short"},
	}}}}
	many := make([]Series, 12)
	for i := range many {
		many[i] = Series{Legend: "<x>", Points: []Point{{0, float64(i)}, {10, 1}, {100, 2}}}
	}
	data := [][][]Series{{{{Legend: "a", Points: []Point{{0, 1 << 20}, {10, 3 << 20}}}}, nil, {{Legend: "z", Points: []Point{{0, 0}, {10, 0}}}}, many}}
	out := Dashboard(d, data, Range{From: 0, To: 120, Step: 10})
	for decoder := xml.NewDecoder(strings.NewReader(out)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for text, n := range map[string]int{"A &amp; B": 1, ">full<": 1, ">empty<": 1, "no data": 1, ">3 MiB<": 1, ">1/s<": 1, "and 3 more": 1, "&lt;x&gt;": 9, "<polyline": 2 + 2*12} {
		if got := strings.Count(out, text); got != n {
			t.Errorf("%q is there %d times, want %d\n%s", text, got, n, out)
		}
	}
}

// TestFormat: values have units as in Grafana.
func TestFormat(t *testing.T) {
	for _, c := range []struct {
		unit string
		v    float64
		want string
	}{
		{"short", 0, "0"}, {"short", 12, "12"}, {"short", 2500, "2.5 k"}, {"bytes", 1536, "1.5 KiB"}, {"percentunit", 0.25, "25%"}, {"ops", 0.5, "0.5/s"},
		{"s", 0.0025, "2.5 ms"}, {"s", 0.00002, "20 µs"}, {"s", 30, "30 s"}, {"s", 365 * 86400, "365 d"},
	} {
		if got := format(c.unit, c.v); got != c.want {
			t.Errorf("%v of %s: %q, want %q", c.v, c.unit, got, c.want)
		}
	}
}

// TestLegend: labels are filled in, and those that a series lacks are left out.
func TestLegend(t *testing.T) {
	if got := Legend("{{instance}} {{stage}} {{none}}", map[string]string{"instance": "a:1", "stage": "connect"}); got != "a:1 connect" {
		t.Error(got)
	}
}
