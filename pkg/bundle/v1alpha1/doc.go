// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the versioned configuration of a bundle: the one file
// that a user writes to say how the second scheduler and the Konnectivity
// tunnel of a cluster should look.
//
// Start with [Bundle]. Every field states its default, its unit and, where it
// is not obvious, the reason for the default. [Default] fills what is unset,
// [Validate] checks the rules that need no other package; the rules that need
// rendered objects (Kubernetes' own scheduler validation, flags set twice) are
// added by package bundle, whose Load is what most callers want.
//
// A value that two components must agree on (a port, a path, an audience) has
// exactly one field here, so a configuration in which they differ cannot be
// written down.
//
// +k8s:deepcopy-gen=package
package v1alpha1
