// SPDX-License-Identifier: Apache-2.0

// Package component has one description of a program that fairlead runs, and
// renders it four ways: as a static Pod, a DaemonSet, a Deployment, and a local
// process.
//
// Start with [Component]. Its flags are built in one place (packages scheduler
// and konnectivity) and carry what they mean: a path, a port or a plain value.
// So a local process can run with the same arguments as the Pod, with its own
// paths and ports in them.
package component
