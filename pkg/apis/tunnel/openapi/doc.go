// SPDX-License-Identifier: Apache-2.0

// Package openapi holds the OpenAPI definitions of the tunnel API and of the types that it uses. `make generate` writes
// them from the comments of the types.
package openapi
