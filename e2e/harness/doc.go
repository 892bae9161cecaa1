// SPDX-License-Identifier: Apache-2.0

// Package harness has the common code of the end-to-end tests. It brings a
// cluster up with the built fairlead program, with the provider that the
// environment variable PROVIDER names, and has methods for the calls that tests
// make through the cluster.
//
// Start reading at [Suite], the cluster that a test package shares, and
// [Cluster], which has one method for each kind of call (logs, exec, …). load.go
// makes many dials and long streams at once and counts what fails.
//
// Tests written on it run on both providers. Where a simulated node cannot do
// something, they ask [Cluster.Simulated] and say what differs.
package harness
