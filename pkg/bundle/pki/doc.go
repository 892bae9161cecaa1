// SPDX-License-Identifier: Apache-2.0

// Package pki makes the certificates, keys and kubeconfigs of a cluster. It has
// no I/O: callers read and write files.
//
// Start with [NewCA] and [KeyPair.Issue]. There is deliberately no function that
// uses one CA for two purposes; [VerifyDistinct] rejects that.
package pki
