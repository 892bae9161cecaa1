// SPDX-License-Identifier: Apache-2.0

// Package logtest gives tests the lines of a structured log. Start with [New].
package logtest

import (
	"fmt"
	"strings"

	"github.com/go-logr/logr"
)

// New returns a logger that calls line for each event with its verbosity, 0 for errors, and a text:
// the message, and each pair as key="value", without escapes.
func New(line func(level int, text string)) logr.Logger { return logr.New(sink{line: line}) }

type sink struct {
	line  func(int, string)
	pairs []any
}

// Init implements logr.LogSink.
func (sink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (sink) Enabled(int) bool { return true }

// Info implements logr.LogSink.
func (s sink) Info(level int, message string, pairs ...any) {
	var text strings.Builder
	text.WriteString(message)
	pairs = append(s.pairs[:len(s.pairs):len(s.pairs)], pairs...)
	for i := 0; i+1 < len(pairs); i += 2 {
		fmt.Fprintf(&text, ` %v="%v"`, pairs[i], pairs[i+1])
	}
	s.line(level, text.String())
}

// Error implements logr.LogSink.
func (s sink) Error(err error, message string, pairs ...any) {
	if err != nil {
		pairs = append(pairs[:len(pairs):len(pairs)], "err", err)
	}
	s.Info(0, message, pairs...)
}

// WithValues implements logr.LogSink.
func (s sink) WithValues(pairs ...any) logr.LogSink {
	s.pairs = append(s.pairs[:len(s.pairs):len(s.pairs)], pairs...)
	return s
}

// WithName implements logr.LogSink.
func (s sink) WithName(string) logr.LogSink { return s }
