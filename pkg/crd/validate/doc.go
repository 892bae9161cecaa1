// SPDX-License-Identifier: Apache-2.0

// Package validate says what kube-apiserver answers when an object of a
// CustomResourceDefinition is created or updated, without an API server.
//
// Start at [New]. [Validator.Create], [Validator.Update] and [Validator.UpdateStatus] take
// the steps of kube-apiserver in its order, with its code: decode and prune (decode.go),
// apply defaults, prepare and validate with the strategy of custom resources (request.go),
// store in the storage version, and read back (store.go). Admission, quota and the
// permissions of the client are not part of the answer.
//
// # Why some code is our own
//
// kube-apiserver's decoding of custom resources is not exported. decode.go and store.go
// chain the exported functions that it consists of: pruning, defaulting and coercion of
// metadata. The test of pkg/crd compares the results with those of a real kube-apiserver.
package validate
