// SPDX-License-Identifier: Apache-2.0

// Package testutil has what tests of all packages share: the layer that a test belongs to, how long it may run, and how
// it waits for a condition.
//
// The layers are those of the Makefile. `make test-unit` sets -short and runs tests without a control plane. `make test`
// sets FAIRLEAD_TEST_LAYER=main and also runs the integration tests of each package's main path. A plain `go test`, and
// `make test-all`, run all tests.
package testutil
