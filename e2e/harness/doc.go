// Package harness is what the end-to-end tests have in common: it brings a
// cluster up through the built fairlead program, with the provider that the
// environment variable PROVIDER names, and gives tests the calls to make
// through it.
//
// Start reading at [Suite], the cluster that a test package shares, and
// [Cluster], which has one method for each kind of call (logs, exec, …). load.go
// makes many dials and long streams at once and counts what fails.
//
// Tests written on it run on both providers. Where a simulated node cannot do
// something, they ask [Cluster.Simulated] and say what differs.
package harness
