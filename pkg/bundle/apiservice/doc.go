// SPDX-License-Identifier: Apache-2.0

// Package apiservice makes the objects that register an extension API server with kube-apiserver's aggregation layer: its
// identity, its rights, its serving certificate and the APIService. It works for any extension API server.
//
// Start with [Request], and see [Request.Objects] for what is made of it.
package apiservice
