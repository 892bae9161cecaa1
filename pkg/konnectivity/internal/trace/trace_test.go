// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
)

// TestLoad: kube-apiserver's file is understood, and a wrong one is refused with what to do.
func TestLoad(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "tracing.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"
	for text, want := range map[string]Config{
		head: {Endpoint: DefaultEndpoint},
		head + "endpoint: otel.example:4317\nsamplingRatePerMillion: 100\n": {"otel.example:4317", 100},
	} {
		if got, err := Load(write(text)); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                                  "TracingConfiguration",
		"kind: EgressSelectorConfiguration": "want kind TracingConfiguration of apiserver.config.k8s.io/v1",
		"apiVersion: apiserver.k8s.io/v1\nkind: TracingConfiguration": "want kind TracingConfiguration of apiserver.config.k8s.io/v1",
		head + "samplingRate: 1":                 "samplingRate",
		head + "samplingRatePerMillion: 1000001": "from 0 to 1000000",
		head + "endpoint: http://collector":      "give host:port",
	} {
		if got, err := Load(write(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want an error with %q", text, got, err, want)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "--tracing-config-file") {
		t.Errorf("no file: %v", err)
	}
}

// TestSampling: a child follows its parent whatever the rate is, and without a parent the rate counts.
func TestSampling(t *testing.T) {
	parent := traceparent.Parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	silent := parent
	silent.Sampled = false
	for _, c := range []struct {
		rate   int
		parent traceparent.Context
		want   bool
	}{{0, traceparent.Context{}, false}, {million, traceparent.Context{}, true}, {0, parent, true}, {million, silent, false}} {
		tr := New(Config{Endpoint: DefaultEndpoint, SamplingRatePerMillion: c.rate}, "test", "v0", logtest.New(func(_ int, line string) { t.Log(line) }))
		span, ctx := tr.Start(c.parent, "x", Internal)
		if (span != nil) != c.want {
			t.Errorf("rate %d, parent %q: recorded is %v", c.rate, c.parent, span != nil)
		}
		if !c.want && ctx != c.parent {
			t.Errorf("rate %d, parent %q: %q is passed on", c.rate, c.parent, ctx)
		}
		if c.want && c.parent.Valid() && (ctx.TraceID != c.parent.TraceID || ctx.SpanID == c.parent.SpanID) {
			t.Errorf("the child of %q is %q", c.parent, ctx)
		}
	}
	var off *Tracer
	span, ctx := off.Start(parent, "x", Internal)
	span.Set("a", "b")
	span.End("")
	if span != nil || ctx != parent {
		t.Errorf("without a tracer: %v, %q", span, ctx)
	}
}

// TestReport proves that a collector that is gone is logged once, although each try has a connection from another port.
func TestReport(t *testing.T) {
	var lines []string
	tracer := &Tracer{log: logtest.New(func(_ int, text string) { lines = append(lines, text) })}
	before := ""
	for port := range 5 {
		before = tracer.report(before, fmt.Errorf("read tcp 10.0.0.1:%d->10.0.0.2:4317: connection reset by peer", 40000+port), 1)
	}
	tracer.report(before, nil, 1)
	if len(lines) != 2 {
		t.Errorf("%d lines, want a failure and the recovery:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}
