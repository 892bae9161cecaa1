// SPDX-License-Identifier: Apache-2.0

// Package lint says what is wrong with a CustomResourceDefinition, and whether it is safe
// to replace an older one, without an API server.
//
// [Definition] has three sources: the validation that kube-apiserver runs when a definition
// is created (server.go), checks of definitions that kube-apiserver accepts and that cause problems later
// (accepted.go, paths.go, cost.go), and, in [Set], conflicts between definitions. [Change]
// compares two generations of a definition: kube-apiserver's validation of an update and
// the effects on clients and on stored objects (change.go, narrow.go).
//
// Each [Finding] has a stable rule; [Rules] lists them with their remedies.
//
// # Why this is not a library
//
// The validation is k8s.io/apiextensions-apiserver. Only the comparison of two generations
// and the further rules are our own, about 1,300 lines with comments. sigs.k8s.io/crdify and
// openshift/crd-schema-checker compare schemas, too; no version of their modules was
// available when this was written, so they are not compared here.
package lint
