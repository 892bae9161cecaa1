// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// exportPath is OTLP's method for traces.
const exportPath = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

// exportTimeout bounds one request.
const exportTimeout = 10 * time.Second

// exporter makes OTLP requests over HTTP/2 without TLS, which is what kube-apiserver does too.
type exporter struct {
	client    *http.Client
	transport *http.Transport
	url       string
	resource  []byte
	version   string
}

func newExporter(endpoint, program, version string) *exporter {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, MaxIdleConns: 1, IdleConnTimeout: time.Minute}
	var resource []byte
	resource = appendAttribute(resource, 1, "service.name", program)
	resource = appendAttribute(resource, 1, "service.version", version)
	return &exporter{client: &http.Client{Transport: transport, Timeout: exportTimeout}, transport: transport,
		url: "http://" + endpoint + exportPath, resource: resource, version: version}
}

func (e *exporter) close() { e.transport.CloseIdleConnections() }

// export sends spans in one gRPC call.
func (e *exporter) export(ctx context.Context, spans []*Span) error {
	message := e.encode(spans)
	frame := make([]byte, 5, 5+len(message))
	binary.BigEndian.PutUint32(frame[1:], uint32(len(message))) //nolint:gosec // a batch is far below 4 GiB
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(append(frame, message...)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	resp, err := e.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)); err != nil {
		return err
	}
	status, message2 := resp.Trailer.Get("Grpc-Status"), resp.Trailer.Get("Grpc-Message")
	if status == "" { // an answer without a body has its status in the headers
		status, message2 = resp.Header.Get("Grpc-Status"), resp.Header.Get("Grpc-Message")
	}
	if resp.StatusCode != http.StatusOK || status != "0" {
		return fmt.Errorf("collector answered %s, gRPC status %q %s", resp.Status, status, message2)
	}
	return nil
}

// encode returns an ExportTraceServiceRequest. Numbers are those of fields in opentelemetry/proto/trace/v1.
func (e *exporter) encode(spans []*Span) []byte {
	var scope []byte
	scope = appendText(scope, 1, "github.com/fairlead-dev/fairlead/pkg/konnectivity")
	scope = appendText(scope, 2, e.version)
	scopeSpans := appendMessage(nil, 1, scope)
	for _, s := range spans {
		scopeSpans = appendMessage(scopeSpans, 2, s.encode())
	}
	resourceSpans := appendMessage(nil, 1, e.resource)
	resourceSpans = appendMessage(resourceSpans, 2, scopeSpans)
	return appendMessage(nil, 1, resourceSpans)
}

func (s *Span) encode() []byte {
	var b []byte
	b = appendMessage(b, 1, s.ctx.TraceID[:])
	b = appendMessage(b, 2, s.ctx.SpanID[:])
	if s.parent != [8]byte{} {
		b = appendMessage(b, 4, s.parent[:])
	}
	b = appendText(b, 5, s.name)
	b = protowire.AppendTag(b, 6, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(s.kind)) //nolint:gosec // a small constant
	for field, at := range map[protowire.Number]time.Time{7: s.start, 8: s.end} {
		b = protowire.AppendTag(b, field, protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, uint64(at.UnixNano())) //nolint:gosec // after 1970
	}
	for _, a := range s.attributes {
		b = appendAttribute(b, 9, a[0], a[1])
	}
	if s.failure != "" {
		status := appendText(nil, 2, s.failure)
		status = protowire.AppendTag(status, 3, protowire.VarintType)
		b = appendMessage(b, 15, protowire.AppendVarint(status, 2)) // STATUS_CODE_ERROR
	}
	return b
}

func appendMessage(b []byte, field protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), message)
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func appendAttribute(b []byte, field protowire.Number, key, value string) []byte {
	pair := appendText(nil, 1, key)
	return appendMessage(b, field, appendMessage(pair, 2, appendText(nil, 1, value)))
}
