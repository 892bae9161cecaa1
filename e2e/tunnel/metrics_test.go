// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// family is the part of a metric family that has to be the same as upstream's.
type family struct {
	kind   dto.MetricType
	labels string
}

// scrape reads the metric families of a program whose names are upstream's.
func scrape(t *testing.T, url string) map[string]family {
	t.Helper()
	text, err := fetch(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	out := map[string]family{}
	for name, f := range parsed {
		if !strings.HasPrefix(name, "konnectivity_network_proxy_") {
			continue
		}
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		out[name] = family{f.GetType(), strings.Join(labels, ",")}
	}
	return out
}

// TestMetricsAreUpstreams checks that, after the same traffic, each metric of
// upstream's programs exists with the same name, type and labels.
// It observes KON-84 of docs/requirements.md.
func TestMetricsAreUpstreams(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			seen := map[release][2]map[string]family{}
			for _, from := range []release{v0_36_0, ours} {
				p := startPair(t, options{mode: mode, server: from, agent: from})
				_ = p.dial(t).Close()
				if conn, err := p.dialer()(t.Context(), "127.0.0.1:1"); err == nil { // the dial is refused: failures have metrics, too
					_ = conn.Close()
				}
				seen[from] = [2]map[string]family{scrape(t, p.serverHealth), scrape(t, p.agentHealth)}
			}
			for i, who := range []string{"server", "agent"} {
				want, got := seen[v0_36_0][i], seen[ours][i]
				if len(want) < 5 {
					t.Errorf("%s: upstream has only %d metrics", who, len(want))
				}
				for name, w := range want {
					switch g, ok := got[name]; {
					case !ok:
						t.Errorf("%s: %s is missing", who, name)
					case g != w:
						t.Errorf("%s: %s is %v, upstream's is %v", who, name, g, w)
					}
				}
			}
		})
	}
}
