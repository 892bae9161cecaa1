// SPDX-License-Identifier: Apache-2.0

// Package crd reads CustomResourceDefinitions for the tools of "fairlead crd". The tools
// are packages of their own:
//
//   - lint says what is wrong with a definition, and whether a change of it is safe;
//   - validate says what the API server would answer to an object, without an API server;
//   - convert calls a conversion webhook and compares what comes back;
//   - migrate rewrites stored objects in the storage version.
//
// They judge with the code of k8s.io/apiextensions-apiserver, the same that runs in
// kube-apiserver; they also report definitions that the API server accepts and that cause problems later.
// The tests of this package run the tools and a real kube-apiserver on the cases in
// testdata and compare the answers.
//
// Start at [Decode].
package crd
