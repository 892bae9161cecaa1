// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	upagent "sigs.k8s.io/apiserver-network-proxy/pkg/agent/metrics"
	upserver "sigs.k8s.io/apiserver-network-proxy/pkg/server/metrics"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// described is how upstream's client library writes a description.
var described = regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: \{([^}]*)\}`)

// upstreamMetrics are the fields of a struct of upstream's, whether they have samples or
// not: a scrape shows none of the others.
func upstreamMetrics(t *testing.T, all any) map[string]family {
	t.Helper()
	out := map[string]family{}
	v := reflect.ValueOf(all).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		c, ok := reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem().Interface().(prometheus.Collector) //nolint:gosec // no other way to what is not exported
		if !ok {
			t.Fatalf("%s is no metric", v.Type().Field(i).Name)
		}
		ch := make(chan *prometheus.Desc, 1)
		c.Describe(ch)
		m := described.FindStringSubmatch((<-ch).String())
		if m == nil {
			t.Fatalf("%s is described in another way", v.Type().Field(i).Name)
		}
		out[m[1]] = family{kindOf(f.Type().String()), sorted(strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' }))}
	}
	return out
}

// ourMetrics are all of a registry. Only their own package can list them.
func ourMetrics(r any) map[string]family {
	out := map[string]family{}
	all := reflect.ValueOf(r).Elem().FieldByName("metrics")
	for i := range all.Len() {
		m := all.Index(i).Elem().Elem()
		var labels []string
		if vec := m.FieldByName("labels"); vec.IsValid() {
			for i := range vec.Len() {
				labels = append(labels, vec.Index(i).String())
			}
		} else if vec := m.FieldByName("label"); vec.IsValid() && vec.String() != "" {
			labels = []string{vec.String()}
		}
		d := m.FieldByName("desc")
		out[d.FieldByName("n").String()] = family{kindOf(d.FieldByName("typ").String()), sorted(labels)}
	}
	return out
}

func sorted(labels []string) string {
	slices.Sort(labels)
	return strings.Join(labels, ",")
}

// kindOf tells the type of a metric by a name of that type.
func kindOf(name string) dto.MetricType {
	for _, kind := range []dto.MetricType{dto.MetricType_COUNTER, dto.MetricType_GAUGE, dto.MetricType_HISTOGRAM} {
		if strings.Contains(strings.ToUpper(name), kind.String()) {
			return kind
		}
	}
	return dto.MetricType_UNTYPED
}

// TestAllMetricsAreUpstreams: each metric of upstream's programs is there with the same
// name, type and labels, also those that no traffic of TestMetricsAreUpstreams shows, and
// there is no other under upstream's names.
// It observes KON-84 of docs/requirements.md.
func TestAllMetricsAreUpstreams(t *testing.T) {
	for who, c := range map[string]struct {
		want, got map[string]family
		least     int
	}{
		"server": {upstreamMetrics(t, upserver.Metrics), ourMetrics(server.NewMetrics().Registry), 17},
		"agent":  {upstreamMetrics(t, upagent.Metrics), ourMetrics(agent.NewMetrics().Registry), 11},
	} {
		if len(c.want) < c.least {
			t.Errorf("%s: upstream has only %d metrics", who, len(c.want))
		}
		for name, w := range c.want {
			if g, ok := c.got[name]; !ok || g != w {
				t.Errorf("%s: %s is there: %v, as %v, upstream's is %v", who, name, ok, g, w)
			}
		}
		for name := range c.got {
			if _, ok := c.want[name]; !ok && strings.HasPrefix(name, "konnectivity_network_proxy_") {
				t.Errorf("%s: upstream has no %s", who, name)
			}
		}
	}
}
