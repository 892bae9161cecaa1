// SPDX-License-Identifier: Apache-2.0

// Package auth authenticates clients of the ways into the cluster: by a password, by a
// client certificate, or by a bearer token that the API server reviews.
package auth
