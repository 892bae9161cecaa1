// SPDX-License-Identifier: Apache-2.0

// Package pemcheck finds the parts of PEM files that cannot be read, which crypto/x509 and
// crypto/tls ignore.
package pemcheck

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// Count returns how many PEM blocks of data can be read, and how many cannot: because they
// are cut, damaged, or hold a certificate that does not parse. crypto/x509 and crypto/tls
// ignore the latter without an error, and so take half of a file for the whole. Text between
// blocks and blocks of other types do no harm.
func Count(data []byte) (good, unreadable int) {
	begins, ends := 0, 0
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		switch {
		case isBegin(line):
			begins++
		case bytes.HasPrefix(line, []byte("-----END")):
			ends++
		}
	}
	blocks := 0
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		blocks++
		if block.Type == "CERTIFICATE" && len(block.Headers) == 0 {
			if _, err := x509.ParseCertificate(block.Bytes); err != nil {
				unreadable++
				continue
			}
		}
		good++
	}
	return good, unreadable + max(0, max(begins, ends)-blocks)
}

// isBegin reports whether a line begins a block, or did before it was cut.
func isBegin(line []byte) bool {
	const begin, least = "-----BEGIN ", len("-----B")
	return bytes.HasPrefix(line, []byte(begin)) || len(line) >= least && bytes.HasPrefix([]byte(begin), line)
}

// DamageError says that a part of a file cannot be read.
type DamageError struct {
	// Path is the file's.
	Path string
	// Good and Unreadable are numbers of PEM blocks.
	Good, Unreadable int
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%s has %s and %s: write the whole file again, best under another name that is then renamed",
		e.Path, count(e.Good, "readable PEM block"), count(e.Unreadable, "unreadable one"))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Check returns a [*DamageError] for a file with a part that cannot be read.
func Check(path string, data []byte) error {
	if good, bad := Count(data); bad > 0 {
		return &DamageError{path, good, bad}
	}
	return nil
}
