// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"
)

// TestJudge: a row passes where the median of ours reaches the goal, fails where it does
// not, and where it has no value.
func TestJudge(t *testing.T) {
	const least, most, absolute = "down MB/s, 1", "dial ms p50", "fds left after churn"
	for name, c := range map[string]struct {
		key            string
		upstream, ours []float64
		pass, without  bool
	}{
		"at least, reached":          {least, []float64{100, 90, 500}, []float64{190, 1, 191}, true, false},
		"at least, missed":           {least, []float64{100}, []float64{189}, false, false},
		"at most, reached":           {most, []float64{2}, []float64{1.3}, true, false},
		"at most, missed":            {most, []float64{2}, []float64{1.31}, false, false},
		"absolute, reached":          {absolute, []float64{230}, []float64{0}, true, false},
		"absolute, missed":           {absolute, []float64{230}, []float64{1}, false, false},
		"absolute without upstream":  {absolute, nil, []float64{0}, true, false},
		"no value of ours":           {least, []float64{100}, nil, false, true},
		"nothing to compare it with": {least, nil, []float64{190}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			res := &results{v: map[string]map[string][]float64{}}
			for _, v := range c.upstream {
				res.add(c.key, upstream, v)
			}
			for _, v := range c.ours {
				res.add(c.key, "ours", v)
			}
			rows := judge("grpc", res)
			if len(rows) != 1 || rows[0].pass != c.pass || rows[0].without != c.without {
				t.Fatalf("%+v", rows)
			}
			var out strings.Builder
			printGoals(&out, "grpc", res)
			if got := strings.Contains(out.String(), "| ✓ |"); got != c.pass || strings.Contains(out.String(), "| ✗ |") == c.pass {
				t.Errorf("printed as\n%s", out.String())
			}
		})
	}
}

// TestAheadOfSSH: what ssh -D does better is marked, in either direction.
func TestAheadOfSSH(t *testing.T) {
	for key, better := range map[string]float64{"down MB/s, 1": 600, "dial ms p50": 1} {
		res := &results{v: map[string]map[string][]float64{}}
		res.add(key, upstream, 100)
		res.add(key, "ours", 500)
		res.add(key, sshName, better)
		if rows := judge("http-connect", res); len(rows) != 1 || rows[0].ahead {
			t.Errorf("%s: %+v", key, rows)
		}
	}
}

// TestPercentile: the highest for a percentile that so few values do not have, and none of none.
func TestPercentile(t *testing.T) {
	ts := []time.Duration{5, 1, 4, 2, 3}
	for p, want := range map[int]time.Duration{0: 1, 50: 3, 99: 5, 100: 5} {
		if got := percentile(ts, p); got != want {
			t.Errorf("p%d is %d, want %d", p, got, want)
		}
	}
	if got := percentile(nil, 50); got != 0 {
		t.Errorf("p50 of nothing is %d", got)
	}
	if got := median([]float64{9, 1, 5}); got != 5 {
		t.Errorf("the median is %v", got)
	}
}
