// Package pki makes the certificates, keys and kubeconfigs of a cluster. It has
// no I/O: callers read and write files.
//
// Start with [NewCA] and [KeyPair.Issue]. There is deliberately no function that
// makes one CA serve two purposes (AGG-32); [VerifyDistinct] refuses it.
package pki
