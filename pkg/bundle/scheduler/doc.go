// SPDX-License-Identifier: Apache-2.0

// Package scheduler renders the second scheduler of a bundle: its
// configuration file, its identity and rights, and the workload that runs it.
//
// Start with [Objects] for the cluster, or with [Component] and [Configuration]
// for one process.
package scheduler
