// SPDX-License-Identifier: Apache-2.0

// Package upstream34 is a module of its own that pins apiserver-network-proxy
// v0.34.0, whose programs the tests of mixed pairs build and run.
package upstream34
