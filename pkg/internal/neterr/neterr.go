// SPDX-License-Identifier: Apache-2.0

// Package neterr words errors of connections so that the same fault has the same text each time. Package net writes the address of this side, whose
// port is another one for each connection: who logs or stores only what has changed would do so each time.
package neterr

import "regexp"

// source is what package net writes of a connection, as in "read tcp 10.0.0.1:36412->10.0.0.2:443: i/o timeout". It is looked for in the text:
// errors of DNS have nothing else, nor have those that an API server quotes.
var source = regexp.MustCompile(`\b([a-z]+ (?:tcp|udp|unix)[46]?) \S+->`)

// Text returns the text of an error without the addresses of this side.
func Text(text string) string { return source.ReplaceAllString(text, "$1 ") }

// Steady returns an error with the Text of err, which wraps err; nil for nil.
func Steady(err error) error {
	if err == nil {
		return nil
	}
	text := Text(err.Error())
	if text == err.Error() {
		return err
	}
	return &steady{err, text}
}

type steady struct {
	err  error
	text string
}

func (e *steady) Error() string { return e.text }
func (e *steady) Unwrap() error { return e.err }
