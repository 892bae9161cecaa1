// SPDX-License-Identifier: Apache-2.0

// Package konnectivity renders the two ends of the tunnel: the proxy server next
// to each kube-apiserver and the agents in the cluster.
//
// Start with [Server] and [Agent], which describe the two programs, and
// [Objects], which are the in-cluster parts. The kube-apiserver's own part is in
// package apiserver.
package konnectivity
