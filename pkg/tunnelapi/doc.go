// SPDX-License-Identifier: Apache-2.0

// Package tunnelapi is the extension API server that shows the state of the tunnel: `kubectl get tunnelagents`. It is
// read-only and keeps its objects in memory. docs/tunnel-api.md describes how to use and run it.
//
// Data flows in one direction:
//
//   - internal/collect asks each konnectivity-server for its state, in the protocol of pkg/konnectivity/state, and makes
//     objects of the answers.
//   - internal/memstore keeps these objects. Upstream's watch cache stands above it.
//   - internal/registry serves them: get, list, watch and tables.
//   - app is the command: flags, delegated authentication and authorization, and start-up, by k8s.io/apiserver.
//
// The types are in pkg/apis/tunnel/v1alpha1.
package tunnelapi
