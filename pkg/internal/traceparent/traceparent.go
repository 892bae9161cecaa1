// SPDX-License-Identifier: Apache-2.0

// Package traceparent reads, writes and hands on trace contexts of W3C's Trace Context, without OpenTelemetry's modules:
// the tunnel's programs are built without them.
package traceparent

import (
	"context"
	"encoding/hex"
	"net/http"
	"strings"
)

// Header is the name of the HTTP header, and of the gRPC metadata, that holds a context.
const Header = "traceparent"

// Context says to which trace a span belongs and which span is its parent. The zero Context is none.
type Context struct {
	TraceID [16]byte
	SpanID  [8]byte
	// Sampled says that the parent is recorded, and that its children are to be recorded.
	Sampled bool
}

// Valid reports whether the context is one.
func (c Context) Valid() bool { return c.TraceID != [16]byte{} && c.SpanID != [8]byte{} }

// String returns the context as a traceparent of W3C's Trace Context, or "" for none.
func (c Context) String() string {
	if !c.Valid() {
		return ""
	}
	flags := "00"
	if c.Sampled {
		flags = "01"
	}
	return "00-" + hex.EncodeToString(c.TraceID[:]) + "-" + hex.EncodeToString(c.SpanID[:]) + "-" + flags
}

// Set adds the context to the headers of a request. None adds nothing.
func (c Context) Set(h http.Header) {
	if c.Valid() {
		h.Set(Header, c.String())
	}
}

// Parse reads a traceparent. Anything else, which any client can send, is no context: the specification has receivers
// begin a new trace then. Versions above 00 may have further fields.
func Parse(text string) Context {
	parts := strings.Split(text, "-")
	if len(parts) < 4 || len(parts[0]) != 2 || len(parts[3]) != 2 || parts[0] == "ff" || parts[0] == "00" && len(parts) != 4 {
		return Context{}
	}
	var c Context
	var version, flags [1]byte
	for _, field := range []struct {
		into []byte
		text string
	}{{version[:], parts[0]}, {c.TraceID[:], parts[1]}, {c.SpanID[:], parts[2]}, {flags[:], parts[3]}} {
		if len(field.text) != 2*len(field.into) || strings.ToLower(field.text) != field.text {
			return Context{}
		}
		if _, err := hex.Decode(field.into, []byte(field.text)); err != nil {
			return Context{}
		}
	}
	if !c.Valid() {
		return Context{}
	}
	c.Sampled = flags[0]&1 != 0
	return c
}

// contextKey is that of a Context in a context.Context.
type contextKey struct{}

// With returns a context that has c, if c is one, for clients that send it on.
func With(ctx context.Context, c Context) context.Context {
	if !c.Valid() {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, c)
}

// From returns what With has put into ctx, or none.
func From(ctx context.Context) Context {
	c, _ := ctx.Value(contextKey{}).(Context)
	return c
}
