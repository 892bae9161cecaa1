// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API that fairlead-apiserver serves: group tunnel.fairlead.dev. Its objects show the state of
// the tunnel. They are read-only and have no spec. docs/tunnel-api.md describes how to use them.
//
// Start with [TunnelAgent]. The comments of the types and fields are what "kubectl explain" shows.
//
// The external types are the only ones: there are no internal ones, because the server neither stores nor converts
// what it serves.
//
// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
// +k8s:protobuf-gen=package
// +k8s:openapi-model-package=dev.fairlead.tunnel.v1alpha1
// +groupName=tunnel.fairlead.dev
package v1alpha1
