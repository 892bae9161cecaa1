// SPDX-License-Identifier: Apache-2.0

// Package convert tests a conversion webhook: it sends ConversionReviews as kube-apiserver
// does, converts objects to each other version and back, and reports what is lost.
//
// Start at [Run]. review.go builds requests and judges responses by kube-apiserver's rules,
// diff.go compares objects, endpoint.go connects.
//
// # Why this is not a library
//
// kube-apiserver's own client of conversion webhooks stops at the first mistake, and hides
// what it repairs: it puts back metadata, and prunes fields. A test wants all mistakes. The
// test of pkg/crd lets a real kube-apiserver judge the same webhooks.
package convert
