// SPDX-License-Identifier: Apache-2.0

// Package trace records spans of dials and exports them to an OpenTelemetry collector by OTLP over gRPC.
//
// Start with [Load], which reads the same file as kube-apiserver's --tracing-config-file, and [Tracer.Start]. A nil
// *Tracer and a nil *Span do nothing, so that code that is traced needs no conditions.
//
// # Why this is not a library
//
// k8s.io/component-base/tracing does the same, with OpenTelemetry's SDK, grpc-go and the protobuf runtime. Server and
// agent are built without these three, and every process would pay for them, also with tracing off:
// docs/adr/0009-own-trace-exporter.md has the figures. The tests of package tunneltest export to OpenTelemetry's own
// service on grpc-go, so the encoding is checked against theirs.
package trace
