// SPDX-License-Identifier: Apache-2.0

// Package memstore is a storage.Interface of k8s.io/apiserver whose objects are in memory. It stands below upstream's
// watch cache in the place of etcd, so that upstream's code answers get, list and watch.
//
// Start with [New]. [Store.Put] and [Store.Remove] are how the owner of the data writes; the other methods are those of
// the interface.
//
// # Resource versions
//
// The resource versions of a store begin with an epoch, and each change adds one. The epoch is the time, in nanoseconds, at
// which the process started. So the resource versions of a process are greater than those of each process that started
// before it. Replicas start together, but not within the nanoseconds that their numbers of changes differ by. A client that
// brings a resource version from elsewhere gets the answers that the API promises: 410 for one that is too old, a timeout
// with a time to try again for one from the future. See [Guard] and [Epoch].
//
// # History
//
// The store keeps the objects as they were after each change in the last 90 seconds, for pages of a list and for lists at
// an exact resource version. They share their nodes and objects: see [btree.BTreeG.Clone].
//
// # Why this is not a library
//
// Upstream has one implementation of the interface, for etcd. Servers that keep their objects in memory, such as
// Antrea's and metrics-server, have their own, without limits and continue tokens, and with resource versions that begin
// at zero with each process. None of them is a package that others can import. Upstream's own tests of the interface run
// against this package, alone and below upstream's watch cache.
package memstore
