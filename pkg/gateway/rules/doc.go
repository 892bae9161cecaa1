// SPDX-License-Identifier: Apache-2.0

// Package rules decides which client may connect to which destination.
//
// A destination passes these steps in order: addresses that are always denied, the rules of
// the command line, the rule file, and the API server's own authorization. Each refusal names
// its rule. Start with Authorizer in authorizer.go.
package rules
