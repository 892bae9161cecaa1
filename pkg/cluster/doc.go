// SPDX-License-Identifier: Apache-2.0

// Package cluster holds what all providers of clusters share: the [Provider]
// interface that the commands use, the location of a cluster's state ([Home]),
// the order of the steps of up and down ([Lifecycle]), and how a cluster's context
// is added to and removed from the user's kubeconfig. Each provider has a package of
// its own: embedded runs processes, kind runs containers. Package providers finds the
// provider that has a cluster.
package cluster
