// SPDX-License-Identifier: Apache-2.0

// Package bundle is the core of fairlead: it turns a configuration into typed
// Kubernetes objects and files. It is pure: it and the packages of this module
// that it imports read no files, do not read the clock and use no client (a
// test checks that). Only package pki uses randomness, for keys.
//
// Start with [Load], which reads a configuration, and [Render], which makes the
// [Output]. What is inside comes from one package per part:
//
//   - v1alpha1: the configuration's types, defaults and rules
//   - component: one description of a program, rendered as static Pod, DaemonSet,
//     Deployment or local process
//   - scheduler, konnectivity, egress, aggregation: the parts
//   - rbac, pki: what the parts are made of
package bundle
