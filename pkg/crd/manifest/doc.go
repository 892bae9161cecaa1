// SPDX-License-Identifier: Apache-2.0

// Package manifest reads Kubernetes objects from files, directories and standard input,
// and remembers where each of them stands, so that a finding can name a file, a document
// and a line.
//
// Start at [Load]. A document that cannot be read does not hide the others: see
// [Document.Err].
//
// # Why this is not a library
//
// The builder of k8s.io/cli-runtime reads the same input, but keeps neither the number of
// a document nor lines, and stops at the first document that it cannot read.
package manifest
