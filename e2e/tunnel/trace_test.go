// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestAPIServerTrace: a real kube-apiserver, the server and the agent export to one collector. The dial of a webhook has a
// span of kube-apiserver, which the address finds, and one of the server, of which that of the agent is a child.
// kube-apiserver sends no trace context, as docs/tracing.md says: this fails once it does.
func TestAPIServerTrace(t *testing.T) {
	col := tunneltest.StartCollector(t)
	tracing := "--tracing-config-file=" + write(t, "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: "+col.Endpoint+"\nsamplingRatePerMillion: 1000000\n")
	p := startPair(t, options{mode: "grpc", serverFlags: []string{tracing}, agentFlags: []string{tracing}})
	config := egress(t, v1alpha1.Konnectivity{ProxyProtocol: v1alpha1.ProxyGRPC, Transport: v1alpha1.Transport{UDS: &v1alpha1.UDSTransport{Path: p.socket}}})
	cp := daemontest.StartControlPlane(t, "--"+apiserver.ConfigFlag+"="+write(t, config), tracing)
	denyConfigMaps(t, cp)
	if err := refusal(t, cp); !strings.Contains(err.Error(), denial) {
		t.Fatalf("the webhook answered: %v", err)
	}
	daemontest.Eventually(t, startBound, func() error {
		err := errors.New("no dial of kube-apiserver has a span")
		for _, of := range col.All("apiserver: Proxy via grpc protocol over uds") {
			if err = chain(col, of); err == nil {
				return nil
			}
		}
		return fmt.Errorf("%w; the collector has %q", err, col.Names())
	})
	for _, of := range col.All("apiserver: Proxy via grpc protocol over uds") {
		for _, s := range col.All("konnectivity-server: konnectivity-server dial") {
			if string(s.TraceId) == string(of.TraceId) {
				t.Error("kube-apiserver sends its trace context: rewrite the section on it in docs/tracing.md")
			}
		}
	}
}

// chain finds the spans of the server and the agent for a dial of kube-apiserver.
func chain(col *tunneltest.Collector, of *tracev1.Span) error {
	address := attribute(of, "address")
	for _, s := range col.All("konnectivity-server: konnectivity-server dial") {
		if attribute(s, "address") != address || s.StartTimeUnixNano < of.StartTimeUnixNano || s.StartTimeUnixNano > of.EndTimeUnixNano {
			continue
		}
		for _, a := range col.All("konnectivity-agent: konnectivity-agent dial") {
			if string(a.TraceId) == string(s.TraceId) && string(a.ParentSpanId) == string(s.SpanId) {
				return nil
			}
		}
		return fmt.Errorf("the agent has no child of the server's span for %s", address)
	}
	return fmt.Errorf("the server has no span for %s within that of kube-apiserver", address)
}

func attribute(s *tracev1.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}
