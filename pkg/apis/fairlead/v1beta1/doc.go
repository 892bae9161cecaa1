// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 holds the API of group fairlead.dev: the version that clusters store,
// and the hub of all conversions.
//
// Start with [Bundle], which is also what bundle.yaml holds. [SchedulerProfile] tells
// users which schedulerName they may name, and [TunnelPool] is a group of agents that an
// autoscaler may scale. Parts of a bundle that are equal in all versions are the types of
// package pkg/bundle/v1alpha1, which renders them.
//
// # Defaults
//
// The schema has no defaults. Package pkg/bundle fills them in when it renders, so that a
// default has one place, a stored object has only what its author wrote, and the commands
// and the API server cannot disagree.
//
// +k8s:deepcopy-gen=package
// +groupName=fairlead.dev
package v1beta1
